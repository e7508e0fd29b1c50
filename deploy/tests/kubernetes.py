"""Renders the Kustomize base, the example overlay and the Helm chart, holds them to Kubernetes' schemas and to what the
program needs, and starts the program with the configuration of the pods.

    kubernetes.py KUBECTL HELM ARCLIGHT FOLDER
"""

import copy
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml

from servers import DEMO, Server, post

kubectl, helm, arclight, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
here = Path(__file__).resolve().parent.parent
folder.mkdir(parents=True, exist_ok=True)


def rendered(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def one(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def cores(quantity):
    return float(quantity[:-1]) / 1000 if str(quantity).endswith("m") else float(quantity)


def check(what, objects):
    for o in objects:
        if o["apiVersion"].startswith("monitoring.coreos.com"):
            continue  # Not Kubernetes' own: the operator's definitions are not in the package.
        for version in ("1.31", "1.37"):
            kubernetes_validate.validate(o, version, strict=True)
    pods = one(objects, "StatefulSet")["spec"]
    labels, spec = pods["template"]["metadata"]["labels"], pods["template"]["spec"]
    (container,) = spec["containers"]

    # The quality of service is guaranteed, with whole CPUs: only such pods get cores of their own.
    resources = container["resources"]
    assert resources["requests"] == resources["limits"], f"{what}: requests are not limits"
    assert cores(resources["limits"]["cpu"]).is_integer(), f"{what}: CPUs are not whole"
    # Without variables of services, one of which would be ARCLIGHT_PORT.
    assert spec["enableServiceLinks"] is False

    # All selectors find the pods, and names lead to objects.
    for o in objects:
        selector = o.get("spec", {}).get("selector", {})
        selector = selector.get("matchLabels", selector)
        if o["kind"] in ("Service", "PodDisruptionBudget", "StatefulSet"):
            assert selector and selector.items() <= labels.items(), f"{what}: {o['kind']} selects other pods"
        if o["kind"] == "ServiceMonitor":
            services = [s for s in objects if s["kind"] == "Service" and selector.items() <= s["metadata"]["labels"].items()]
            assert len(services) == 1, f"{what}: the monitor selects {len(services)} services"
            assert services[0]["metadata"]["labels"][o["spec"]["jobLabel"]] == "arclight"
    one(objects, "Service", pods["serviceName"])
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    config = one(objects, "ConfigMap", volumes["config"]["configMap"]["name"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    templates = {claim["metadata"]["name"] for claim in pods["volumeClaimTemplates"]}
    assert set(mounts) == set(volumes) | templates, f"{what}: volumes and mounts differ"

    # The pod security level "restricted".
    security = {**spec["securityContext"], **container["securityContext"]}
    assert security["runAsNonRoot"] and security["runAsUser"] != 0 and security["readOnlyRootFilesystem"]
    assert security["allowPrivilegeEscalation"] is False and security["capabilities"]["drop"] == ["ALL"]
    assert security["seccompProfile"]["type"] == "RuntimeDefault"

    # There is time to finish requests, and the cache fits into its claim.
    options = tomllib.loads(config["data"]["arclight.toml"])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = spec["terminationGracePeriodSeconds"]
    assert pause + options["drain-timeout"] < grace, f"{what}: {pause} s + drain-timeout >= {grace} s"
    (claim,) = pods["volumeClaimTemplates"]
    assert int(options["cache-bytes"][:-1]) < int(claim["spec"]["resources"]["requests"]["storage"][:-2])

    # Every path of the configuration lies in a mount.
    for key in ("api-key-file", "models-dir", "cache-dir"):
        assert any(Path(options[key]).is_relative_to(path) for path in mounts.values()), f"{what}: {key}"
    (port,) = container["ports"]
    assert port["containerPort"] == options["port"]
    return options


def starts(options):
    """The program takes the configuration, with paths of this machine; with the variables of a pod."""
    models, keys = folder / "models", folder / "keys"
    models.mkdir(exist_ok=True)
    (models / "demo.gguf").write_bytes(DEMO.read_bytes())
    keys.write_text("secret\n")
    options = {**options, "models-dir": models, "api-key-file": keys, "cache-dir": folder / "prefixes",
               "host": ["127.0.0.1"], "port": 0}
    path = folder / "arclight.toml"
    path.write_text("".join(f"{key} = {value!r}\n" if isinstance(value, (int, list)) else f'{key} = "{value}"\n'
                            for key, value in options.items()))
    server = Server(arclight, folder / "server.log")
    server.command = [arclight, "serve", "--config", str(path)]
    with server:
        url = f"http://{server.address}/v1/completions"
        body = {"model": "demo", "prompt": "Once", "max_tokens": 4}
        assert post(url, body)[0] == 401
        status, text = post(url, body, {"authorization": "Bearer secret"})
        assert status == 200, text


def likeness(objects):
    """The parts of the pods and the disruption budget that both ways share, without names and labels."""
    pods = copy.deepcopy(one(objects, "StatefulSet")["spec"])
    spec = pods["template"]["spec"]
    del pods["selector"], pods["template"]["metadata"], spec["affinity"]
    spec["containers"][0].pop("imagePullPolicy", None)
    for claim in pods["volumeClaimTemplates"]:
        claim["metadata"].pop("labels", None)
    for volume in spec["volumes"]:
        volume.get("configMap", {}).pop("name", None)
    budget = dict(one(objects, "PodDisruptionBudget")["spec"])
    del budget["selector"]
    claims = one(objects, "PersistentVolumeClaim")["spec"]
    return {"pods": pods, "budget": budget, "claims": claims,
            "options": tomllib.loads(one(objects, "ConfigMap")["data"]["arclight.toml"])}


base = rendered(kubectl, "kustomize", here / "kubernetes/base")
options = check("base", base)
starts(options)
check("example", rendered(kubectl, "kustomize", here / "kubernetes/example"))

chart = here / "helm/arclight"
subprocess.run([helm, "lint", "--strict", "--quiet", chart], check=True)
template = [helm, "template", "arclight", chart, "--kube-version", "1.35.0"]
default = rendered(*template)
check("chart", default)
assert likeness(default) == likeness(base), "the chart's default differs from the Kustomize base"
settings = ["replicas=3", "cpu=64", "severalNodes=true", "serviceMonitor.enabled=true", "models.existingClaim=nfs",
            "image.tag=9", "nodeSelector.zone=a", "podAnnotations.note=b", "prefixes.storageClassName=fast",
            "imagePullSecrets[0].name=pull", "tolerations[0].operator=Exists"]
custom = rendered(*(w.replace("arclight", "llm") if w == "arclight" else w for w in template),
                  *(w for setting in settings for w in ("--set", setting)))
check("chart with values", custom)
assert not [o for o in custom if o["kind"] == "PersistentVolumeClaim"] and one(custom, "ServiceMonitor")
pods = one(custom, "StatefulSet", "llm-arclight")["spec"]
(container,) = pods["template"]["spec"]["containers"]
assert pods["replicas"] == 3 and container["resources"]["limits"]["cpu"] == "64" and container["image"] == "arclight:9"
assert container["securityContext"]["capabilities"]["add"] == ["SYS_NICE"]
half = subprocess.run([*template, "--set", "cpu=1.5"], capture_output=True, text=True)
assert half.returncode != 0 and "cpu must be a whole number" in half.stderr, half.stderr
print(f"kubernetes: {len(base)} objects by Kustomize, the same by Helm; the program starts with their options")
