"""Beside the tensors of state dicts and trees: facts that readers compare, and further names of tensors.

Facts are a bundle's metadata, a dict of strings. A value that is no string is kept as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ._bundle import Bundle

TIED = "gpubufd.tied"  # metadata: further names of tensors, by these names, as JSON
SHOWN = 5  # fields in the sentence of a Mismatch


class Mismatch(ValueError):
    """The published object is not the expected one.

    `fields`: {name: (expected, found)} of each fact or tensor that differs, as text; None: absent.
    """

    def __init__(self, name: str, fields: Dict[str, Tuple[Any, Any]]):
        self.name, self.fields = name, fields
        told = [f"{field}: expected {_told(expected)}, found {_told(found)}"
                for field, (expected, found) in list(fields.items())[:SHOWN]]
        more = [f"and {len(fields) - SHOWN} more"] if len(fields) > SHOWN else []
        super().__init__(f"{name!r} is not what was expected: " + "; ".join(told + more))

    def __reduce__(self) -> Any:
        return Mismatch, (self.name, self.fields)


def _told(value: Any) -> str:
    return "none" if value is None else str(value)


def facts(values: Optional[Mapping[str, Any]]) -> Dict[str, str]:
    """Facts as metadata. TypeError, with the fact's name: JSON cannot express its value."""
    found = {}
    for key, value in (values or {}).items():
        try:
            found[key] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        except (TypeError, ValueError):
            raise TypeError(
                f"{key!r}: {type(value).__name__} is neither a string nor a value of JSON: convert it, as by str(…)"
            ) from None
    return found


def check_facts(bundle: Bundle, expected: Optional[Mapping[str, Any]]) -> None:
    """Mismatch: the bundle has other facts, or lacks some."""
    if not expected:
        return
    there = bundle.metadata
    wrong = {key: (expected[key], there.get(key)) for key, text in facts(expected).items() if there.get(key) != text}
    if wrong:
        raise Mismatch(bundle.name, wrong)


def check_tensors(name: str, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Mismatch: the tensors differ. Both dicts have each tensor's dtype and shape: "float32 (2, 3)"."""
    wrong: Dict[str, Tuple[Any, Any]] = {
        key: (told, found.get(key)) for key, told in expected.items() if found.get(key) != told}
    wrong.update({key: (None, told) for key, told in found.items() if key not in expected})
    if wrong:
        raise Mismatch(name, wrong)


def metadata_of(values: Optional[Mapping[str, Any]], others: Mapping[str, str]) -> Dict[str, str]:
    """A bundle's metadata: the facts, and the further names."""
    found = facts(values)
    if others:
        found[TIED] = json.dumps(others)
    return found


def further_names(bundle: Bundle) -> List[Tuple[str, str]]:
    """(further name, the tensor's own name) of tensors with several names. Malformed metadata are ignored."""
    try:
        found = json.loads(bundle.metadata.get(TIED, "{}"))
    except ValueError:
        return []
    if not isinstance(found, dict):
        return []
    return [(name, of) for name, of in found.items() if isinstance(of, str) and of in bundle and name not in bundle]
