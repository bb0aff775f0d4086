"""Small changes to a program, one at a time: each should make some test fail."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {
    "min": "max",
    "max": "min",
    "amin": "amax",
    "amax": "amin",
    "argmin": "argmax",
    "argmax": "argmin",
    "sum": "mean",
    "mean": "sum",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "ones": "zeros",
    "clamp_min": "clamp_max",
    "clamp_max": "clamp_min",
}
SKIPPED = ("annotation", "returns", "decorator_list", "type_params", "bases")
"""Parts of a program that do not decide what it computes."""

UNSEEN = ("device", "strict", "check_finite")
"""Keywords that are not changed: where, and with what checks, is not what is computed."""


@dataclass(frozen=True)
class Mutant:
    """A changed program.

    Attributes:
        place: enclosing functions and classes, and the first line of the changed statement.
        change: the smallest changed part, before and after; numbered where the place has it more than once.
        line: its line number in the original.
        source: the whole changed program.
    """

    place: str
    change: str
    line: int
    source: str

    @property
    def key(self) -> str:
        """What the mutant is known by, whatever is added above it in the file."""
        return f"{self.place} | {self.change}"


def mutants(source: str) -> Iterator[Mutant]:
    """All programs that differ from ``source`` in one place, by the operators of this module."""
    tree, met = ast.parse(source), Counter[str]()
    for parent, field, index, place in _sites(tree):
        old = _get(parent, field, index)
        for new in _changed(old):
            change = f"{ast.unparse(old)} -> {'nothing' if isinstance(new, ast.Pass) else ast.unparse(new)}"
            met[f"{place} | {change}"] += 1
            number = met[f"{place} | {change}"]
            _set(parent, field, index, new)
            changed = ast.unparse(ast.fix_missing_locations(tree))
            _set(parent, field, index, old)
            yield Mutant(place, f"{change} ({number})" if number > 1 else change, old.lineno, changed)


def _get(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    return value if index is None else value[index]


def _set(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _sites(node: ast.AST, inside: str = "", statement: str = "") -> Iterator[tuple[ast.AST, str, int | None, str]]:
    """(parent, field, index, place) of every statement and expression that may be changed."""
    for field, value in ast.iter_fields(node):
        if field in SKIPPED:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.stmt | ast.expr | ast.comprehension | ast.keyword | ast.arguments):
                continue
            if _is_remark(child) or (isinstance(child, ast.keyword) and child.arg in UNSEEN):
                continue
            within, first = inside, statement
            if isinstance(child, ast.stmt):
                first = ast.unparse(child).splitlines()[0]
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                within = f"{inside}.{child.name}" if inside else child.name
            if isinstance(child, ast.stmt | ast.expr):
                yield node, field, index, f"{inside or 'module'} | {first}"
            yield from _sites(child, within, first)


def _is_remark(node: ast.AST) -> bool:
    """Docstrings, imports, type aliases, and what is said when an error is raised."""
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return documents or isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What a part of a program is replaced by, in turn."""
    new = copy.deepcopy(node)
    match new:
        case ast.BinOp() | ast.BoolOp() if type(new.op) in SWAPS:
            new.op = SWAPS[type(new.op)]()
            yield new
        case ast.Compare():
            for position, operator in enumerate(new.ops):
                if type(operator) in SWAPS:
                    other = copy.deepcopy(new)
                    other.ops[position] = SWAPS[type(operator)]()
                    yield other
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield new.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not new.value)
        case ast.Constant(value=int() | float()):
            kind = type(new.value)
            for value in (kind(0), new.value * 2 if kind is float else new.value + 1) if new.value else (kind(1),):
                yield ast.Constant(value)
        case ast.AugAssign() if type(new.op) in SWAPS:
            new.op = SWAPS[type(new.op)]()
            yield new
            yield ast.Pass()
        case ast.Expr():
            yield ast.Pass()
        case ast.If() | ast.While() | ast.IfExp() if not isinstance(new.test, ast.Compare):
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield new
        case ast.Attribute() | ast.Name() if isinstance(new.ctx, ast.Load):
            field = "attr" if isinstance(new, ast.Attribute) else "id"
            if getattr(new, field) in NAMES:
                setattr(new, field, NAMES[getattr(new, field)])
                yield new
            elif isinstance(new, ast.Attribute) and new.attr == "T":
                yield new.value
        case ast.Call() if new.keywords:
            for position, keyword in enumerate(new.keywords):
                if keyword.arg not in UNSEEN:
                    other = copy.deepcopy(new)
                    del other.keywords[position]
                    yield other
