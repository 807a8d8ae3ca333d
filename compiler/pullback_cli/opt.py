"""The command `pullback opt`, which is also `pullback-opt`: passes on a module, as mlir-opt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from pullback_cli.call import call
from pullback_cli.options import flag, load_rules_option
from pullback_cli.passes import described_passes

TRUTHS = {"true": True, "1": True, "false": False, "0": False}
VALUES_FOLLOW = "--"
"""After this, no argument is an option."""


class OptCommand(click.Command):
    """A command as mlir-opt spells its flags; one that is not an option is a pass with options.

    `-cse`, `--cse` and `--jvp="wrt=0"` are passes, in the order given; `-o=FILE` is `-o FILE`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite one dash to two, and flags that are not options to `-p`."""
        known = {
            name: each for each in self.get_params(ctx) for name in each.opts + each.secondary_opts
        }
        end = args.index(VALUES_FOLLOW) if VALUES_FOLLOW in args else len(args)
        rewritten = [part for arg in args[:end] for part in _rewritten(arg, known)]
        return super().parse_args(ctx, rewritten + args[end:])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return options and passes that begin so."""
        found = super().shell_complete(ctx, incomplete)
        passes = _passes(ctx, None, incomplete.lstrip("-")) if incomplete.startswith("-") else []
        return found + [CompletionItem(f"--{each.value}", help=each.help) for each in passes]


def _passes(_: Any, __: Any, incomplete: str) -> list[CompletionItem]:
    """Return the passes whose names begin so."""
    known = described_passes().items()
    return [CompletionItem(name, help=text) for name, text in known if name.startswith(incomplete)]


def _rewritten(arg: str, known: Mapping[str, click.Parameter]) -> list[str]:
    """Return an argument as click reads it: no part for a flag that is set to false."""
    flag_text, equals, value = arg.partition("=")
    name = flag_text.lstrip("-")
    if not name or not arg.startswith("-"):
        return [arg]
    if flag_text in known and len(name) == 1:
        return [flag_text, value] if equals else [arg]
    option = known.get(f"--{name}")
    if isinstance(option, click.Option) and option.is_flag and value in TRUTHS:
        return [f"--{name}"] if TRUTHS[value] else option.secondary_opts[:1]
    if option is not None:
        return [f"--{name}{equals}{value}"]
    return ["-p", f"--{name}{{{value}}}" if value else f"--{name}"]


@click.command(
    cls=OptCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every pass is a flag as well, run in the order given: --inline-calls --cse "
    '--jvp="entry=main wrt=0". --list-passes lists them. One dash does as well as two.',
)
@click.argument("file", default="-", type=click.Path())
@click.option(
    "-o",
    "output",
    default="-",
    metavar="FILE",
    type=click.Path(),
    help="Write here; '-' is stdout.",
)
@click.option(
    "--pass-pipeline", metavar="TEXT", help="Run builtin.module(first,second{key=value})."
)
@click.option(
    "-p",
    "passes",
    multiple=True,
    metavar="TEXT",
    shell_complete=_passes,
    help="Run these passes; repeatable.",
)
@load_rules_option
@click.option(
    "--load-pass-plugin",
    "pass_plugins",
    multiple=True,
    metavar="PLACE",
    type=click.Path(),
    help="Import passes from path/file.py or package.module; repeatable.",
)
@flag("--allow-unregistered-dialect", "Take ops, types and attributes of unknown dialects.")
@flag("--split-input-file", "Treat the parts between '// -----' lines as modules of their own.")
@flag("--verify-diagnostics", "Check errors against '// expected-error {{…}}' comments.")
@click.option("--verify-each/--no-verify-each", default=True, help="Verify after each pass.")
@flag("--verify-roundtrip", "Check first that the module survives its text and its bytecode.")
@flag("--mlir-disable-threading", "Use one thread. This is always so.")
@click.option(
    "--mlir-print-ir-before",
    "print_before",
    metavar="PASSES",
    default="",
    help="Print before these.",
)
@click.option(
    "--mlir-print-ir-after", "print_after", metavar="PASSES", default="", help="Print after these."
)
@flag("--mlir-print-ir-before-all", "Print before each pass.", "print_before_all")
@flag("--mlir-print-ir-after-all", "Print after each pass.", "print_after_all")
@flag(
    "--mlir-print-ir-after-change",
    "Print after each pass that changed something.",
    "print_after_change",
)
@flag("--mlir-print-ir-after-failure", "Print after a pass that failed.", "print_after_failure")
@flag("--mlir-print-ir-module-scope", "Print the module, not one function. This is always so.")
@click.option(
    "--mlir-print-ir-tree-dir",
    "print_tree_dir",
    metavar="DIR",
    type=click.Path(),
    help="Print after each pass, to files.",
)
@flag("--mlir-timing", "Print how long each pass took.", "timing")
@flag(
    "--mlir-pass-statistics",
    "Print how many ops of each kind each pass adds and takes away.",
    "statistics",
)
@click.option(
    "--mlir-elide-elementsattrs-if-larger",
    "elide_larger_than",
    type=int,
    metavar="N",
    help="Print larger constants as '...'.",
)
@flag("--mlir-print-debuginfo", "Print locations.", "debuginfo")
@flag("--mlir-print-op-generic", "Print ops in their generic form.", "generic")
@flag("--mlir-use-nameloc-as-prefix", "Name values as their locations do.", "nameloc_as_prefix")
@flag("--mlir-print-value-users", "Print the users of each value behind its op.", "value_users")
@flag("--emit-bytecode", "Write bytecode.")
@flag("--dump-pass-pipeline", "Print the pipeline to stderr before it runs.")
@click.option(
    "--mlir-generate-reproducer",
    "generate_reproducer",
    metavar="FILE",
    type=click.Path(),
    help="Write the module and the pipeline to FILE, and run it.",
)
@click.option(
    "--mlir-pass-pipeline-crash-reproducer",
    "reproducer",
    metavar="FILE",
    type=click.Path(),
    help="Write them to FILE if the pipeline fails.",
)
@flag("--run-reproducer", "Run the pipeline that the input file holds.")
@click.option("--debug-only", metavar="TYPES", help="Not to be had: jaxlib is built without it.")
@click.option("--log-actions-to", metavar="FILE", help="Not to be had from jaxlib.")
@flag("--show-dialects", "List the dialects that can be read.")
@flag("--list-passes", "List passes and their options.")
@click.option("--json", "as_json", is_flag=True, help="With --list-passes: as JSON.")
@flag("--version", "Show the versions of pullback, JAX and StableHLO.")
def opt(**given: Any) -> None:
    """Run passes on FILE: MLIR text, bytecode, a StableHLO portable artifact, or a jax.export.

    '-' is stdin.
    """
    call("pullback.tools.opt:opt", given)
