"""A program on kr8s that reads and writes the objects of all members of the fleet view.

    kr8s_client.py KUBECONFIG NAMESPACE

Members alive and edge have Secrets, edge a pod with the label app=web. It prints "restart" when the
server is to be restarted, goes on when it reads a line, and ends with what its watches hold, as JSON.
A failure is a traceback.
"""

import json
import sys
import threading
import time

import httpx
import kr8s
from kr8s.objects import Secret

TIMEOUT = 60
KUBECONFIG, NAMESPACE = sys.argv[1:]


def connect():
    return kr8s.api(kubeconfig=KUBECONFIG, namespace=NAMESPACE)


def origin(item):
    return item.labels["resource.karmada.io/cached-from-cluster"]


def wait_until(what, done):
    end = time.monotonic() + TIMEOUT
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


class Cache(threading.Thread):
    """Names and clusters by watches, each of which begins with all objects."""

    def __init__(self):
        super().__init__(daemon=True)
        self.watches, self.clusters, self.labeled = 0, {}, set()

    def run(self):
        while True:
            try:
                self.watch()
            # Whatever breaks a watch, the next one begins anew.
            except Exception as error:
                print("watch:", error, file=sys.stderr)
            time.sleep(0.1)

    def watch(self):
        self.watches += 1
        clusters = {}
        for event, secret in connect().watch("secrets", namespace=NAMESPACE):
            if event == "DELETED":
                clusters.pop(secret.name, None)
            else:
                clusters[secret.name] = origin(secret)
                if "later" in secret.labels:
                    self.labeled.add(secret.name)
            self.clusters = dict(clusters)


class Program:
    def __init__(self):
        self.api = connect()
        self.cache = Cache()

    def list(self):
        return {s.name: origin(s) for s in self.api.get("secrets", namespace=NAMESPACE)}

    def agrees(self):
        try:
            return self.cache.clusters == self.list()
        except (kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError):
            return False

    def label(self, name, key):
        """Labels a Secret, in whichever member it is; false if that has failed."""
        try:
            Secret.get(name, namespace=NAMESPACE, api=self.api).label({key: "yes"})
            return True
        except (kr8s.NotFoundError, kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError):
            return False

    def reads_and_writes(self):
        [pod] = self.api.get("pods", namespace=NAMESPACE, label_selector="app=web")
        assert origin(pod) == "edge", pod.raw
        assert "second 0" in next(iter(pod.logs())), pod.name
        assert pod.exec(["say", "this"]).stdout == b"say this\n"
        assert self.label("a", "read")
        selected = {"label_selector": "read=yes", "field_selector": "metadata.name=a"}
        wait_until(
            "a label that selects",
            lambda: len(list(self.api.get("secrets", namespace=NAMESPACE, **selected))) == 1,
        )

    def run(self):
        self.reads_and_writes()
        self.cache.start()
        wait_until("a cache that agrees with a list", self.agrees)
        print("restart", flush=True)
        watches = self.cache.watches
        sys.stdin.readline()
        wait_until("a write after the restart", lambda: self.label("after", "later"))
        wait_until("another watch", lambda: self.cache.watches > watches)
        wait_until("the event of the write", lambda: "after" in self.cache.labeled)
        wait_until("a cache that agrees after the restart", self.agrees)
        print(json.dumps(self.cache.clusters), flush=True)


Program().run()
