from dataclasses import dataclass
from typing import ClassVar

from pullback.passes.base import Pass


@dataclass(frozen=True)
class Rename(Pass):
    """Give the entry another name.

    Before: `func.func @main`. After: `func.func @main_1`.
    """

    name: ClassVar[str] = "cse"
    suffix: str = "_1"

    def run(self, module, rules):
        entry = module.body.operations[0]
        if self.suffix == "raise":
            raise ValueError("no such suffix")
        entry.attributes["sym_name"] = type(entry.attributes["sym_name"]).get(
            entry.attributes["sym_name"].value + self.suffix
        )
