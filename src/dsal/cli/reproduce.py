"""``dsal reproduce``: the paper's tables and figures, in one command that can be stopped and called again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[table1|table2|fig3|fig4|fig5|fig6|all]...", help="What to reproduce; all by default."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the reproduction; what it holds is not done again.")] = Path(
        "reproduction"
    ),
    dataset: Annotated[str, typer.Option(help="Features of CIFAR-100: embedded, or a file.")] = "cifar100-features",
    characters: Annotated[
        str | None, typer.Option(help="Features of Omniglot, for Fig. 6.", show_default="omniglot-features if there")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder with the images of CIFAR-100, for Fig. 3.", show_default=False)
    ] = None,
    expansion_size: Annotated[int | None, typer.Option(help="d_B for CIFAR-100.", show_default="8192")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of the projection.", show_default="0,1,2")] = None,
    activations: Annotated[
        str | None, typer.Option(help="Activations of Fig. 5.", show_default="gelu,hardswish,mish,sigmoid,tanh")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny version of everything, to see it work.")] = False,
) -> None:
    """Reproduce tables and figures of the paper; results, figures and pages go to a folder.

    Call it again to go on after it was stopped. Progress goes to stderr, the paths of the pages to stdout.
    """
    from dsal.cli.display import Display
    from dsal.cli.options import read_seeds
    from dsal.data import feature_set_names
    from dsal.experiments.document import write_documents
    from dsal.experiments.plan import Plan
    from dsal.experiments.plan import quick as quick_plan
    from dsal.experiments.reproduction import reproduce as steps_of

    display = Display()
    embedded = "omniglot-features"
    if characters is None and embedded in feature_set_names():
        characters = embedded
    options: dict[str, Any] = {
        "dataset": dataset,
        "characters": characters,
        "data_root": None if data_root is None else str(data_root),
        **({} if expansion_size is None else {"expansion_size": expansion_size}),
        **({} if seeds is None else {"seeds": read_seeds(seeds)}),
        **({} if activations is None else {"activations": tuple(activations.split(","))}),
    }
    plan = quick_plan(**options) if quick else Plan(**options)
    if characters is None:
        display.note(f"Fig. 6 is on CIFAR-100 alone: {embedded} are not there")
    with display.bar() as bar:
        task = bar.add_task("training", total=None)
        for step in steps_of(what or ["all"], plan, out):
            display.note(f"{step.done}/{step.total}  {step.title}")
            bar.update(task, completed=step.done, total=step.total)
    for path in write_documents(out):
        typer.echo(path)
