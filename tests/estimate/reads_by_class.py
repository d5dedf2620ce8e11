"""Which fields of which classes the sources read, by the annotations: `p.overlap` is a read of the class that `p` is of.

No two classes of the package have one name (`tests/test_architecture.py`), so that a class is known by its own. What is
worked out is what the models are written in: annotated parameters, fields and properties; names that are assigned from such;
calls of annotated functions and of classes; entries of mappings; `self`. Anything else is of no class, and reads of it count
for nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Sources:
    """Modules, with what their annotations say."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
        self._classes: dict[str, dict[str, ast.expr]] = {}  # annotations of fields, properties and methods by class
        self._returned: dict[str, ast.expr] = {}  # by function
        for node in (each for tree in self._trees for each in ast.walk(tree)):
            if isinstance(node, ast.ClassDef):
                self._classes[node.name] = dict(_members(node))
            elif isinstance(node, _FUNCTIONS) and node.returns is not None:
                self._returned.setdefault(node.name, node.returns)

    def reads(self) -> set[tuple[str, str]]:
        """Class and field of everything that is read."""
        return {each for tree in self._trees for each in self._read(tree, {}, None)}

    def _read(self, node: ast.AST, known: dict[str, str], owner: str | None) -> Iterator[tuple[str, str]]:
        """Reads below a node.

        Args:
            node: A module, class, function or less.
            known: Classes of the names that are seen here; a function's own are added to a copy.
            owner: The class around it.
        """
        if isinstance(node, ast.ClassDef):
            owner = node.name
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            known = dict(known)
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for position, each in enumerate(arguments):
                known.pop(each.arg, None)
                found = owner if position == 0 and each.arg == "self" else self._named(each.annotation)
                if found is not None:
                    known[each.arg] = found
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found = self._class(node.value, known)
            if found is not None:
                yield found, node.attr
        for child in ast.iter_child_nodes(node):
            yield from self._read(child, known, owner)
        self._assign(node, known)

    def _assign(self, node: ast.AST, known: dict[str, str]) -> None:
        """Notes what names are of, behind the line that gives them a value."""
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self._note(node.target.id, self._named(node.annotation), known)
        elif isinstance(node, ast.NamedExpr):
            self._note(node.target.id, self._class(node.value, known), known)
        elif isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                if isinstance(target, ast.Name):
                    self._note(target.id, self._class(value, known), known)

    def _note(self, name: str, found: str | None, known: dict[str, str]) -> None:
        if found is not None:
            known[name] = found
        else:
            known.pop(name, None)

    def _class(self, node: ast.expr, known: dict[str, str]) -> str | None:
        """The class of a value, by its name; None where annotations do not say it."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._named(self._annotation(node, known))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            held = self._annotation(node.value, known)  # Mapping[str, Costs]
            inside = held.slice if isinstance(held, ast.Subscript) else None
            return self._named(inside.elts[-1] if isinstance(inside, ast.Tuple) else inside)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                name = node.func.id
                return name if name in self._classes else self._named(self._returned.get(name))
            return self._class(node.func, known)  # a method: what it is annotated to return
        return None

    def _annotation(self, node: ast.Attribute, known: dict[str, str]) -> ast.expr | None:
        owner = self._class(node.value, known)
        return self._classes.get(owner, {}).get(node.attr) if owner is not None else None

    def _named(self, annotation: ast.expr | None) -> str | None:
        """The class that an annotation names: `Machine`, `"Machine"`, `Machine | None`."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        if isinstance(annotation, ast.BinOp):
            return self._named(annotation.left) or self._named(annotation.right)
        return annotation.id if isinstance(annotation, ast.Name) and annotation.id in self._classes else None


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, each.annotation
        elif isinstance(each, _FUNCTIONS) and each.returns is not None:
            yield each.name, each.returns
            if each.name == "__init__":
                yield from _kept(each)
        elif isinstance(each, _FUNCTIONS):
            yield from _kept(each)


def _kept(init: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """`self._machine = machine`, of an annotated parameter."""
    annotated = {each.arg: each.annotation for each in init.args.args if each.annotation is not None}
    for node in ast.walk(init):
        for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
            if (
                isinstance(target, ast.Attribute)
                and ast.unparse(target.value) == "self"
                and isinstance(value, ast.Name)
            ) and value.id in annotated:
                yield target.attr, annotated[value.id]


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned what, of `a, b = c, d` one by one."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value
