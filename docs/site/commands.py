"""The page of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect

import typer
from typer.core import TyperArgument

from dsal.cli.main import app

INTRODUCTION = """# Commands

Generated from the commands. `dsal COMMAND --help` shows the same. Results go to stdout, progress and errors to stderr.
Exit codes: 0 success; 2 a wrong option, name or value; 1 any other error; 130 stopped with Ctrl-C.
"""


def page() -> str:
    """The commands, each with its arguments and options, as Markdown."""
    group = typer.main.get_command(app)
    sections = [INTRODUCTION]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        sections.append(f"## dsal {name}\n\n{_prose(command.help)}\n")
        arguments = [p for p in command.params if isinstance(p, TyperArgument)]
        usage = " ".join(["dsal", name, *map(_metavar, arguments), "[OPTIONS]"])
        sections.append(f"    {usage}\n")
        rows = [_row(p) for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
        sections.append("\n".join(["| | | default |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(sections)


def _prose(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\f", "").replace("[", "\\[")


def _metavar(argument: TyperArgument) -> str:
    return argument.metavar or str(argument.name).upper()


def _row(parameter: object) -> str:
    if isinstance(parameter, TyperArgument):
        name, default = f"`{_metavar(parameter)}`", "required" if parameter.required else ""
    else:
        names = [*parameter.opts, *parameter.secondary_opts]  # type: ignore[attr-defined]
        name, default = "<br>".join(f"`{n}`" for n in names), _default(parameter)
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return f"| {name} | {text} | {default} |"


def _default(option: object) -> str:
    shown, value = option.show_default, option.default  # type: ignore[attr-defined]
    if isinstance(shown, str):
        return shown
    if option.required:  # type: ignore[attr-defined]
        return "required"
    return "" if value in (None, False, [], ()) else f"{value}"
