"""The schema's messages as classes of protobuf's runtime, made from `schema` when they are asked for.

Reading and writing traces here needs none of it. It is for those who want protobuf's own objects, and for checking our
bytes against a second implementation. Needs the extra `chakra`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from meshcast.base import UnsupportedError, how_to_install
from meshcast.chakra.schema import ENUMS, MESSAGES, PACKAGE, VALUES


@cache
def message_classes() -> dict[str, Any]:
    """Classes by the names of their messages: `message_classes()["Node"](id=1, name="a")`.

    Raises:
        UnsupportedError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UnsupportedError(
            "protobuf is not installed", where="chakra", fix=f"install it: {how_to_install('chakra')}"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="meshcast/chakra/et.proto", package=PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        file.enum_type.add(name=name).value.extend(
            descriptor_pb2.EnumValueDescriptorProto(name=value, number=number) for number, value in enumerate(values)
        )
    types = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field in fields:
            made = message.field.add(name=field.name, number=field.number)
            made.label = types.LABEL_REPEATED if field.repeated else types.LABEL_OPTIONAL
            if field.kind in MESSAGES or field.kind in ENUMS:
                made.type = types.TYPE_MESSAGE if field.kind in MESSAGES else types.TYPE_ENUM
                made.type_name = f".{PACKAGE}.{field.kind}"
            else:
                made.type = types.Type.Value(f"TYPE_{field.kind.upper()}")
            if name == "AttributeProto" and field in VALUES:
                made.oneof_index = 0
    # A pool of our own: another package may bring the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}
