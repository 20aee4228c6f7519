"""A program on the Python client of Kubernetes: typed and dynamic clients, a list and a watch
that a cache follows, server-side apply of two managers, deletes.

    KUBECONFIG=FILE python_client.py NAMESPACE API_VERSION KIND

The kind is v1 ConfigMap or policy.karmada.io/v1alpha1 PropagationPolicy. It prints "restart"
when the server is to be restarted, goes on when it reads a line, and ends with what its cache
holds, as JSON. A failure is a traceback.
"""

import json
import sys
import threading
import time

import urllib3
from kubernetes import client, config, dynamic, watch

TIMEOUT = 60


def wanted(api_version, kind, name, value):
    """The object with the one field that the test writes."""
    wanted = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
    if kind == "ConfigMap":
        return wanted | {"data": {"k": str(value)}}
    selector = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}
    placement = {"clusterAffinity": {"clusterNames": ["none"]}}
    spec = {"resourceSelectors": [selector], "placement": placement, "priority": value}
    return wanted | {"spec": spec}


def value_of(found):
    return int(found["data"]["k"] if found["kind"] == "ConfigMap" else found["spec"]["priority"])


def wait_until(what, done):
    end = time.monotonic() + TIMEOUT
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


def refused(code, call):
    """The Status of a call that the server must refuse."""
    try:
        call()
    except client.ApiException as error:
        assert error.status == code, error
        return json.loads(error.body)
    raise AssertionError(f"not refused with {code}")


class Cache(threading.Thread):
    """Names and versions, kept by a list and watches that begin where it ended."""

    def __init__(self, resource, namespace):
        super().__init__(daemon=True)
        self.resource, self.namespace = resource, namespace
        self.versions, self.watches = {}, 0

    def run(self):
        version = None
        while True:
            try:
                version = version or self.list()
                self.watches += 1
                version = self.follow(version)
            except client.ApiException as error:
                version = None if error.status == 410 else version
                time.sleep(0.1)
            except urllib3.exceptions.HTTPError:
                time.sleep(0.1)

    def list(self):
        found = self.resource.get(namespace=self.namespace)
        self.versions = {o.metadata.name: o.metadata.resourceVersion for o in found.items}
        return found.metadata.resourceVersion

    def follow(self, version):
        events = self.resource.watch(namespace=self.namespace, resource_version=version, timeout=60)
        for event in events:
            metadata = event["raw_object"]["metadata"]
            version = metadata["resourceVersion"]
            if event["type"] == "DELETED":
                self.versions.pop(metadata["name"], None)
            elif event["type"] != "BOOKMARK":
                self.versions[metadata["name"]] = version
        return version


class Program:
    def __init__(self, namespace, api_version, kind):
        self.namespace, self.kind_of = namespace, (api_version, kind)
        self.core = client.CoreV1Api()
        self.core.create_namespace({"metadata": {"name": namespace}})
        self.dynamic = dynamic.DynamicClient(client.ApiClient())
        self.resource = self.dynamic.resources.get(api_version=api_version, kind=kind)
        self.cache = Cache(self.resource, namespace)
        self.cache.start()

    def create(self, name, value):
        return self.resource.create(wanted(*self.kind_of, name, value), namespace=self.namespace)

    def get(self, name):
        return self.resource.get(name=name, namespace=self.namespace)

    def is_gone(self, name):
        try:
            self.get(name)
            return False
        except client.ApiException as error:
            assert error.status == 404, error
            return True

    def writes(self):
        for name in ["a", "b", "c"]:
            self.create(name, 1)
        assert refused(409, lambda: self.create("a", 1))["reason"] == "AlreadyExists"
        read = self.get("a").to_dict()
        replacement = read | wanted(*self.kind_of, "a", 2) | {"metadata": read["metadata"]}
        self.resource.replace(replacement, namespace=self.namespace)
        again = lambda: self.resource.replace(replacement, namespace=self.namespace)
        assert refused(409, again)["reason"] == "Conflict"
        merge = wanted(*self.kind_of, "a", 3)
        merge_patch = "application/merge-patch+json"
        patched = self.resource.patch(merge, namespace=self.namespace, content_type=merge_patch)
        assert value_of(patched.to_dict()) == 3, patched
        uid = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
        delete = lambda body: self.resource.delete(name="c", namespace=self.namespace, body=body)
        assert refused(409, lambda: delete(uid))["reason"] == "Conflict"
        delete({"preconditions": {"uid": self.get("c").metadata.uid}})
        # Controllers may have to remove a finalizer first.
        wait_until("an object that is gone", lambda: self.is_gone("c"))

    def apply(self, manager, value, **options):
        body = wanted(*self.kind_of, "applied", value)
        return self.resource.server_side_apply(
            body, namespace=self.namespace, field_manager=manager, **options
        )

    def applies(self):
        self.apply("one", 1)
        conflict = refused(409, lambda: self.apply("two", 2))
        causes = conflict["details"]["causes"]
        assert causes[0]["reason"] == "FieldManagerConflict" and "one" in causes[0]["message"]
        forced = self.apply("two", 2, force_conflicts=True).to_dict()
        assert value_of(forced) == 2, forced
        managers = {m["manager"] for m in forced["metadata"]["managedFields"]}
        assert "two" in managers, managers

    def agrees(self):
        listed = self.resource.get(namespace=self.namespace).items
        versions = {o.metadata.name: o.metadata.resourceVersion for o in listed}
        return versions == self.cache.versions

    def write_after_restart(self):
        try:
            self.create("after", 1)
            return True
        except client.ApiException as error:
            return error.status == 409
        except urllib3.exceptions.HTTPError:
            return False

    def typed_watch(self):
        """The generated client decodes events into its own types."""
        stream = watch.Watch()
        listed = self.core.list_namespaced_service_account
        for event in stream.stream(listed, self.namespace, timeout_seconds=30):
            assert event["object"].metadata.name, event
            stream.stop()

    def run(self):
        self.writes()
        self.applies()
        self.core.create_namespaced_service_account(self.namespace, {"metadata": {"name": "s"}})
        self.typed_watch()
        wait_until("a cache that agrees with a list", self.agrees)
        print("restart", flush=True)
        sys.stdin.readline()
        wait_until("a write after the restart", self.write_after_restart)
        wait_until("another watch after the restart", lambda: self.cache.watches > 1)
        self.resource.delete(name="b", namespace=self.namespace)
        wait_until("a deleted object that is gone", lambda: self.is_gone("b"))
        wait_until("a cache that agrees after the restart", self.agrees)
        print(json.dumps(self.cache.versions), flush=True)


config.load_kube_config()
# Requests of the time without a server fail at once; the program repeats them.
settings = client.Configuration.get_default_copy()
settings.retries = False
client.Configuration.set_default(settings)
Program(*sys.argv[1:]).run()
