#!/usr/bin/env python3
"""Writes openapi/schemas/builtin_*.api from the Go types of Kubernetes.

Enters: checkouts of kubernetes/api, kubernetes/apimachinery and
kubernetes/apiextensions-apiserver at one release tag, and builtin_overlay.txt
beside this file. Leaves: field names, JSON types, protobuf numbers, list types
and patch strategies; facts only, no text of the sources.

    builtin_schemas.py API APIMACHINERY APIEXTENSIONS OUTPUT_DIR

A field's number is a path (`@2.5`) where Go embeds a struct: JSON has its
fields inline, protobuf has a nested message.
"""

import json
import pathlib
import re
import sys

# file → packages, in the order of the files
FILES = {
    "meta": ["meta/v1"],
    "core": ["core/v1"],
    "apps": ["apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "policy/v1"],
    "network": ["networking/v1", "discovery/v1"],
    "access": ["rbac/v1", "authentication/v1", "authorization/v1"],
    "cluster": ["coordination/v1", "scheduling/v1", "storage/v1", "events/v1", "apiextensions/v1"],
}

ROOTS = {
    "meta/v1": "ObjectMeta ListMeta DeleteOptions Status LabelSelector Condition",
    "core/v1": "Namespace ConfigMap Secret Service Endpoints ServiceAccount Event Pod Node "
    "PersistentVolumeClaim PersistentVolume ResourceQuota LimitRange PodTemplate "
    "ReplicationController Binding",
    "apps/v1": "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    "batch/v1": "Job CronJob",
    "autoscaling/v1": "Scale HorizontalPodAutoscaler",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "policy/v1": "PodDisruptionBudget Eviction",
    "networking/v1": "Ingress IngressClass NetworkPolicy",
    "discovery/v1": "EndpointSlice",
    "rbac/v1": "Role ClusterRole RoleBinding ClusterRoleBinding",
    "authentication/v1": "TokenRequest TokenReview SelfSubjectReview",
    "authorization/v1": "SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview "
    "SelfSubjectRulesReview",
    "coordination/v1": "Lease",
    "scheduling/v1": "PriorityClass",
    "storage/v1": "StorageClass",
    "events/v1": "Event",
    "apiextensions/v1": "CustomResourceDefinition",
}

PREFIX = {
    "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1.",
    "apiextensions/v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
}

SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int64",
    "int32": "int32",
    "int64": "int64",
    "float64": "number",
    "[]byte": "bytes",
}

# types whose JSON form is not that of their Go struct
SPECIAL = {
    "meta/v1.Time": "time",
    "meta/v1.MicroTime": "micro-time",
    "meta/v1.Duration": "duration",
    "meta/v1.FieldsV1": "object",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "int-or-string",
    "runtime.RawExtension": "object",
    "runtime.Object": "object",
    "types.UID": "string",
    "types.NodeName": "string",
    "apiextensions/v1.JSON": "any",
    "apiextensions/v1.JSONSchemaPropsOrBool": "any",
    "apiextensions/v1.JSONSchemaPropsOrArray": "any",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "any",
}


class Package:
    def __init__(self, name, folder):
        self.name = name
        self.structs = {}
        self.aliases = {}
        self.consts = {}
        self.enums = {}
        self.imports = {}
        self.enum_types = set()
        self.atomic = set()
        for file in sorted(folder.glob("*.go")):
            if file.name.startswith(("zz_", "generated")) or file.name.endswith("_test.go"):
                continue
            self.read(file.read_text())

    def read(self, text):
        for alias, path in re.findall(r'^\s*(?:import )?(\w+)? ?"(k8s\.io/[^"]+)"', text, re.M):
            parts = path.split("/")
            target = "/".join(parts[-2:]) if re.match(r"v\d", parts[-1]) else parts[-1]
            self.imports[alias or parts[-1]] = target
        comment = []
        lines = iter(text.splitlines())
        for line in lines:
            if line.startswith("//"):
                comment.append(line[2:].strip())
                continue
            struct = re.match(r"type (\w+) struct \{$", line)
            alias = re.match(r"type (\w+) =? ?(.+)$", line)
            if struct:
                if "+structType=atomic" in comment:
                    self.atomic.add(struct[1])
                self.structs[struct[1]] = self.fields(lines)
            elif re.match(r"type \w+ struct ?\{\}$", line):
                self.structs[alias[1]] = []
            elif alias and not alias[2].startswith(("struct", "interface", "func")):
                self.aliases[alias[1]] = alias[2].split("//")[0].strip()
                if "+enum" in comment:
                    self.enum_types.add(alias[1])
            if line.strip():
                comment = []
        for name, kind, value in re.findall(r'^\s+(\w+)\s+(\w+)\s*=\s*"([^"]*)"', text, re.M):
            self.consts[name] = value
            self.enums.setdefault(kind, []).append(value)
        for name, kind, value in re.findall(r'^\s+(\w+)\s*=\s*(\w+)\("([^"]*)"\)', text, re.M):
            self.consts[name] = value
            self.enums.setdefault(kind, []).append(value)
        for name, kind, value in re.findall(r'^const (\w+)\s+(\w+)\s*=\s*"([^"]*)"', text, re.M):
            self.consts[name] = value
            self.enums.setdefault(kind, []).append(value)

    @staticmethod
    def fields(lines):
        found, markers = [], []
        for line in lines:
            if line == "}":
                return found
            text = line.strip()
            if text.startswith("//"):
                markers.append(text[2:].strip())
                continue
            tagged = re.match(r"(?:(\w+)\s+)?([^\s`]+)\s+`([^`]*)`", text)
            if tagged:
                tags = dict(re.findall(r'(\w+):"([^"]*)"', tagged[3]))
                found.append((tagged[2], tags, [m for m in markers if m.startswith("+")]))
            markers = []
        raise SystemExit("a struct without end")


class Writer:
    def __init__(self, packages, overlay):
        self.packages = packages
        self.overlay = overlay
        self.used = set()
        self.types = {}
        self.atomic = set()

    def resolve(self, package, go):
        """Go type → (DSL type, class): class is scalar, struct, list, map or special."""
        if go in SCALARS:
            return SCALARS[go], "scalar"
        if go.startswith("[]"):
            item, _ = self.resolve(package, go[2:].lstrip("*"))
            return "[]" + item, "list"
        if go.startswith("map["):
            item, _ = self.resolve(package, go.split("]", 1)[1].lstrip("*"))
            return f"map[{item}]", "map"
        if "." in go:
            alias, name = go.split(".")
            package = self.packages.get(package.imports[alias], package.imports[alias])
        else:
            name = go
        key = (package if isinstance(package, str) else package.name) + "." + name
        if key in SPECIAL:
            return SPECIAL[key], "scalar" if SPECIAL[key] == "string" else "special"
        if name in package.aliases:
            return self.resolve(package, package.aliases[name])
        if name not in package.structs:
            raise SystemExit(f"unknown type {key}")
        self.visit(package, name)
        return definition(package.name, name), "struct"

    def enum(self, package, go):
        if go.startswith(("[]", "map[")):
            return None
        if "." in go:
            alias, go = go.split(".")
            package = self.packages.get(package.imports[alias])
        if package is None or go not in package.enum_types:
            return None
        return [v for v in dict.fromkeys(package.enums.get(go, [])) if v] or None

    def visit(self, package, name):
        key = definition(package.name, name)
        if key in self.types:
            return
        self.types[key] = lines = []
        if name in package.atomic:
            self.atomic.add(key)
        for row in self.rows(package, name, name, ""):
            lines.append(row)

    def rows(self, package, owner, name, path):
        for go, tags, markers in package.structs[name]:
            json_name, *options = tags["json"].split(",")
            proto = tags.get("protobuf", "")
            number = path + proto.split(",")[1] if proto and proto != "-" else ""
            pointer = go.startswith("*")
            plain = go.lstrip("*")
            if "inline" in options:
                if plain.endswith("TypeMeta"):
                    yield "apiVersion string"
                    yield "kind string"
                    continue
                home, inner = self.home(package, plain)
                yield from self.rows(home, owner, inner, number and number + ".")
                continue
            if json_name == "-":
                continue
            yield self.row(package, owner, (json_name, options), (go, plain, pointer), number, (tags, markers))

    def home(self, package, go):
        if "." not in go:
            return package, go
        alias, name = go.split(".")
        return self.packages[package.imports[alias]], name

    def row(self, package, owner, naming, typing, number, facts):
        json_name, options = naming
        go, plain, pointer = typing
        tags, markers = facts
        kind, form = self.resolve(package, plain)
        optional = "omitempty" in options or any(
            m in ("+optional", "+k8s:optional") for m in markers
        )
        words = [json_name, kind]
        if number:
            words.append("@" + number)
        if not optional:
            words.append("required")
        if pointer and form == "scalar":
            words.append("pointer")
        default = self.default(package, (owner, kind, form), pointer, optional, (options, markers))
        if default is not None:
            words.append("default=" + json.dumps(default, separators=(",", ":")))
        enum = self.enum(package, plain)
        if enum:
            words.append("enum=" + "|".join(enum))
        words += structure(form, tags, markers)
        extra = self.overlay.get((definition(package.name, owner), json_name))
        if extra:
            self.used.add((definition(package.name, owner), json_name))
            words = merge(words, extra)
        return " ".join(words)

    @staticmethod
    def default(package, typing, pointer, optional, facts):
        owner, kind, form = typing
        options, markers = facts
        for marker in markers:
            if marker.startswith("+default="):
                text = marker.removeprefix("+default=")
                ref = re.match(r"ref\((\w+)\)", text)
                value = package.consts[ref[1]] if ref else json.loads(text)
                if value or pointer:
                    return value
        if pointer or "omitzero" in options:
            return None
        if form == "struct":
            return {}
        if kind == "quantity":
            return "0"
        zero = {"string": "", "bool": False, "int32": 0, "int64": 0}.get(kind)
        # Go always writes these; a missing name or port is the validator's affair.
        always = owner.endswith("Status") or owner == "NodeSystemInfo" or kind == "bool"
        if form == "scalar" and "omitempty" not in options and (optional or always):
            return zero
        return None


def structure(form, tags, markers):
    words = []
    values = {}
    for marker in markers:
        found = re.match(r"\+(listType|mapType|structType|listMapKey)=(\S+)$", marker)
        if found:
            values.setdefault(found[1], []).append(found[2])
    if "listType" in values:
        keys = values.get("listMapKey")
        words.append("list=" + values["listType"][0] + (":" + ",".join(keys) if keys else ""))
    if values.get("mapType", values.get("structType")) == ["atomic"]:
        words.append("map=atomic")
    strategy = tags.get("patchStrategy")
    if strategy:
        key = tags.get("patchMergeKey")
        words.append("patch=" + (strategy.replace("merge", "merge:" + key) if key else strategy))
    return words


def merge(words, extra):
    """The overlay's attributes replace those of the same name."""
    names = {w.split("=")[0] for w in extra}
    kept = [w for w in words if "=" not in w or w.split("=")[0] not in names]
    drop = {w[1:] for w in extra if w.startswith("-")}
    return [w for w in kept if w not in drop and w.split("=")[0] not in drop] + [
        w for w in extra if not w.startswith("-")
    ]


def definition(package, name):
    return PREFIX.get(package, "io.k8s.api." + package.replace("/", ".") + ".") + name


def read_overlay(path):
    overlay, owner = {}, None
    for line in path.read_text().splitlines():
        line = line.split("#")[0].rstrip()
        if not line:
            continue
        if not line.startswith(" "):
            owner = line.strip()
            continue
        field, *attributes = line.split()
        overlay[(owner, field)] = attributes
    return overlay


def main():
    api, machinery, extensions, output = (pathlib.Path(a) for a in sys.argv[1:5])
    folders = {
        "meta/v1": machinery / "pkg/apis/meta/v1",
        "apiextensions/v1": extensions / "pkg/apis/apiextensions/v1",
    }
    packages = {}
    for names in FILES.values():
        for name in names:
            packages[name] = Package(name, folders.get(name, api / name))
    writer = Writer(packages, read_overlay(pathlib.Path(__file__).with_name("builtin_overlay.txt")))
    for name, roots in ROOTS.items():
        for root in roots.split():
            writer.visit(packages[name], root)
    unused = set(writer.overlay) - writer.used
    if unused:
        raise SystemExit(f"overlay names unknown fields: {sorted(unused)}")
    for file, names in FILES.items():
        prefixes = [definition(name, "") for name in names]
        text = "# Written by tests/tools/builtin_schemas.py; do not edit.\n"
        for prefix in prefixes:
            for key in sorted(k for k in writer.types if k.startswith(prefix)):
                atomic = " atomic" if key in writer.atomic else ""
                text += f"\ntype {key}{atomic}\n" + "".join(f"  {row}\n" for row in writer.types[key])
        (output / f"builtin_{file}.api").write_text(text)


main()
