"""Another name of `pullback.files`, which documentation and programs use."""

from pullback.files import (
    from_exported as from_exported,
    load as load,
    save as save,
    save_all as save_all,
    serialize as serialize,
    to_exported as to_exported,
)
