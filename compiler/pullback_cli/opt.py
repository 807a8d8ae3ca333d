"""The command `pullback opt`, which is also `pullback-opt`: passes on a module, as mlir-opt."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click
from click.shell_completion import CompletionItem

from pullback_cli.call import call
from pullback_cli.options import flag, load_rules_option
from pullback_cli.passes import described_passes

VALUES_FOLLOW = "--"
"""After this, no argument is an option."""


class OptCommand(click.Command):
    """A command as mlir-opt spells its flags; one that is no option is a pass with its options.

    `-cse`, `--cse` and `--jvp="wrt=0"` are passes, in the order given; `-o=FILE` is `-o FILE`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite one dash to two, and flags that are no options to `-p`."""
        known = {name for each in self.get_params(ctx) for name in each.opts + each.secondary_opts}
        end = args.index(VALUES_FOLLOW) if VALUES_FOLLOW in args else len(args)
        rewritten = [part for arg in args[:end] for part in _rewritten(arg, known)]
        return super().parse_args(ctx, rewritten + args[end:])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return options and passes that begin so."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            word = incomplete.lstrip("-")
            found += [
                CompletionItem(f"--{name}", help=text)
                for name, text in described_passes().items()
                if name.startswith(word)
            ]
        return found


def _rewritten(arg: str, known: Collection[str]) -> list[str]:
    """Return an argument as click reads it."""
    flag_text, equals, value = arg.partition("=")
    name = flag_text.lstrip("-")
    if not name or not arg.startswith("-"):
        return [arg]
    if flag_text in known and len(name) == 1:
        return [flag_text, value] if equals else [arg]
    if f"--{name}" in known:
        return [f"--{name}{equals}{value}"]
    return ["-p", f"--{name}{{{value}}}" if value else f"--{name}"]


@click.command(
    cls=OptCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every pass is a flag as well, run in the order given: --inline-calls --cse "
    '--jvp="entry=main wrt=0". --list-passes lists them. One dash does as well as two.',
)
@click.argument("file", default="-")
@click.option("-o", "output", default="-", metavar="FILE", help="Write here; '-' is stdout.")
@click.option(
    "--pass-pipeline", metavar="TEXT", help="Run builtin.module(first,second{key=value})."
)
@click.option("-p", "passes", multiple=True, metavar="TEXT", help="Run these passes; repeatable.")
@load_rules_option
@flag("--split-input-file", "Treat the parts between '// -----' lines as modules of their own.")
@flag("--verify-diagnostics", "Check errors against '// expected-error {{…}}' comments.")
@click.option("--verify-each/--no-verify-each", default=True, help="Verify after each pass.")
@click.option("--mlir-print-ir-before", metavar="PASSES", default="", help="Print before these.")
@click.option("--mlir-print-ir-after", metavar="PASSES", default="", help="Print after these.")
@flag("--mlir-print-ir-before-all", "Print before each pass.")
@flag("--mlir-print-ir-after-all", "Print after each pass.")
@flag("--mlir-print-ir-after-change", "Print after each pass that changed something.")
@flag("--mlir-print-ir-after-failure", "Print after a pass that failed.")
@click.option("--mlir-print-ir-tree-dir", metavar="DIR", help="Print after each pass, to files.")
@flag("--mlir-timing", "Print how long each pass took.")
@flag("--mlir-pass-statistics", "Print how many ops of each kind each pass adds and takes away.")
@click.option(
    "--mlir-elide-elementsattrs-if-larger",
    "elide_larger_than",
    type=int,
    metavar="N",
    help="Print larger constants as '...'.",
)
@flag("--mlir-print-debuginfo", "Print locations.")
@flag("--mlir-print-op-generic", "Print ops in their generic form.")
@flag("--emit-bytecode", "Write bytecode.")
@flag("--dump-pass-pipeline", "Print the pipeline to stderr before it runs.")
@flag("--run-reproducer", "Run the pipeline that the input file holds.")
@flag("--list-passes", "List passes and their options.")
def opt(**given: Any) -> None:
    """Run passes on FILE: MLIR text, bytecode, a StableHLO portable artifact, or a jax.export.

    '-' is stdin.
    """
    call("pullback.tools.opt:opt", given)
