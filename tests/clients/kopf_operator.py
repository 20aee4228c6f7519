"""An operator on kopf with finalizers, an index of what it has seen, and kopf's admission server
on loopback; and its user, on the Python client of Kubernetes.

    KUBECONFIG=FILE kopf_operator.py NAMESPACE GROUP VERSION PLURAL KIND PORT CERTIFICATE KEY

CERTIFICATE and KEY are files; PORT is where the admission server listens. For the group
operator.example.io the program creates the definition first. It prints "restart" when the server
is to be restarted, goes on when it reads a line, and ends with what the operator has seen, as
JSON. A failure is a traceback.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time

import kopf
import urllib3
from kubernetes import client, config

NAMESPACE, GROUP, VERSION, PLURAL, KIND, PORT, CERTIFICATE, KEY = sys.argv[1:]
DEFINED = "operator.example.io"
SELECTED = {"operated": "yes"}
TIMEOUT = 90

versions = {}
deleted = []


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.1] * 300
    settings.watching.reconnect_backoff = 0.1
    settings.admission.managed = DEFINED
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", port=int(PORT), certfile=CERTIFICATE, pkeyfile=KEY, cafile=CERTIFICATE
    )


@kopf.on.mutate(GROUP, VERSION, PLURAL, operations=["CREATE"], labels=SELECTED)
def mutate(patch, **_):
    patch.metadata.annotations["operator.example.io/mutated"] = "yes"


@kopf.on.validate(GROUP, VERSION, PLURAL, operations=["CREATE"], labels=SELECTED)
def validate(labels, **_):
    if labels.get("refuse"):
        raise kopf.AdmissionError("the operator refuses it", code=422)


@kopf.on.create(GROUP, VERSION, PLURAL, labels=SELECTED)
def created(patch, **_):
    patch.metadata.annotations["operator.example.io/created"] = "yes"


@kopf.on.update(GROUP, VERSION, PLURAL, labels=SELECTED)
def updated(labels, patch, **_):
    patch.metadata.annotations["operator.example.io/updated"] = labels.get("step", "none")


@kopf.on.delete(GROUP, VERSION, PLURAL, labels=SELECTED)
def finalized(name, **_):
    deleted.append(name)


@kopf.on.event(GROUP, VERSION, PLURAL, labels=SELECTED)
def seen(type, name, meta, **_):
    if type == "DELETED":
        versions.pop(name, None)
    else:
        versions[name] = meta["resourceVersion"]


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": PLURAL, "singular": KIND.lower(), "kind": KIND}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{PLURAL}.{GROUP}"}, "spec": spec}


def body(name, **labels):
    metadata = {"name": name, "labels": SELECTED | labels}
    object = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata}
    if GROUP == DEFINED:
        return object | {"spec": {"size": 1}}
    selector = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}
    placement = {"clusterAffinity": {"clusterNames": ["none"]}}
    return object | {"spec": {"resourceSelectors": [selector], "placement": placement}}


def wait_until(what, done):
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            if done():
                return
        except (client.ApiException, urllib3.exceptions.HTTPError):
            pass  # The server is away, or does not have what is asked for yet.
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: {versions}")
        time.sleep(0.05)


class User:
    """What a user of the operator does."""

    def __init__(self):
        config.load_kube_config()
        settings = client.Configuration.get_default_copy()
        settings.retries = False
        client.Configuration.set_default(settings)
        self.custom = client.CustomObjectsApi()
        self.place = (GROUP, VERSION, NAMESPACE, PLURAL)

    def prepare(self):
        client.CoreV1Api().create_namespace({"metadata": {"name": NAMESPACE}})
        if GROUP == DEFINED:
            client.ApiextensionsV1Api().create_custom_resource_definition(definition())
            wait_until("a served definition", lambda: self.items() == {})

    def create(self, name, **labels):
        return self.custom.create_namespaced_custom_object(*self.place, body(name, **labels))

    def get(self, name):
        return self.custom.get_namespaced_custom_object(*self.place, name)

    def delete(self, name):
        self.custom.delete_namespaced_custom_object(*self.place, name)

    def label(self, name, step):
        patch = {"metadata": {"labels": {"step": step}}}
        return self.custom.patch_namespaced_custom_object(*self.place, name, patch)

    def items(self):
        items = self.custom.list_namespaced_custom_object(*self.place)["items"]
        return {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in items}

    def note(self, name, key):
        return self.get(name)["metadata"].get("annotations", {}).get(f"operator.example.io/{key}")

    def refused(self, name):
        """The webhook is called once the server has seen its configuration."""
        try:
            self.create(name, refuse="yes")
        except client.ApiException as error:
            return error.status == 422 and "the operator refuses it" in error.body
        self.delete(name)
        return False

    def mutated(self, name):
        """The configuration of the other webhook is seen by itself, before or after."""
        annotations = self.create(name)["metadata"].get("annotations", {})
        self.delete(name)
        return "operator.example.io/mutated" in annotations

    def exists(self, name):
        return name in self.items()

    def run(self):
        wait_until("a refusal by the admission server", lambda: self.refused("refused"))
        wait_until("a mutation by the admission server", lambda: self.mutated("mutated"))
        for name in ["refused", "mutated"]:
            wait_until(f"no object {name}", lambda: not self.exists(name))
        for name in ["a", "b", "c"]:
            mutated = self.create(name)["metadata"]["annotations"]
            assert mutated["operator.example.io/mutated"] == "yes", mutated
        wait_until("handled creations", lambda: all(self.note(n, "created") for n in "abc"))
        assert any("kopf" in f for f in self.get("a")["metadata"]["finalizers"])
        self.label("a", "one")
        wait_until("a handled update", lambda: self.note("a", "updated") == "one")
        self.delete("c")
        wait_until("a finalized object that is gone", lambda: not self.exists("c"))
        assert "c" in deleted, deleted
        wait_until("an operator that agrees with a list", lambda: self.items() == versions)
        print("restart", flush=True)
        sys.stdin.readline()
        wait_until("a write after the restart", lambda: self.label("a", "two"))
        wait_until("an update handled after the restart", lambda: self.note("a", "updated") == "two")
        self.delete("b")
        wait_until("a deletion after the restart", lambda: not self.exists("b"))
        wait_until("a refusal after the restart", lambda: self.refused("refused"))
        wait_until("an operator that agrees after the restart", lambda: self.items() == versions)
        print(json.dumps(versions), flush=True)


def operate():
    asyncio.run(kopf.operator(standalone=True, namespaces=[NAMESPACE]))


logging.basicConfig(level=logging.WARNING)
user = User()
user.prepare()
threading.Thread(target=operate, daemon=True).start()
user.run()
sys.stdout.flush()
os._exit(0)  # The operator's loop has no end of its own.
