"""The Kubernetes manifests of jobs: an API server accepts them, and they keep the laws for operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.manifests import (
    RELEASES,
    ROOT,
    Manifest,
    Refused,
    check,
    of_kind,
    overlays,
    patched,
    rendered,
)

DOCUMENTATION = ROOT.parent / "docs" / "jobs.md"
CRONJOBS, APPLICATIONS = "spark-cronjobs", "spark-operator"
HOURLY = ("kafscale-retention", "kafscale-compaction", "kafscale-lag")
DAILY = ("kafscale-orphans",)
HOUR_S, DAY_S = 3_600, 86_400
WRITABLE = ("/tmp", "/scratch")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("overlay", overlays())
def test_every_object_is_what_its_kinds_schema_says(overlay: str, release: str) -> None:
    manifests = rendered(overlay)
    assert manifests
    for manifest in manifests:
        check(manifest, release)


def test_a_field_that_no_schema_knows_is_refused() -> None:
    cronjob = deepcopy(next(of_kind(rendered(CRONJOBS), "CronJob")))
    cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolice"] = "Never"
    with pytest.raises(Refused, match="restartPolice"):
        check(cronjob, RELEASES[-1])
    application = deepcopy(next(of_kind(rendered(APPLICATIONS), "ScheduledSparkApplication")))
    application["spec"]["template"]["executor"]["memoryOverHead"] = "1g"
    with pytest.raises(Refused, match="does not know"):
        check(application, RELEASES[-1])
    application["spec"]["template"]["executor"] = {"cores": "two"}
    with pytest.raises(Refused, match="cores"):
        check(application, RELEASES[-1])


def test_all_run_hourly_but_orphans_daily_and_never_two_of_a_job_at_once() -> None:
    cronjobs = {found["metadata"]["name"]: found["spec"] for found in of_kind(rendered(CRONJOBS), "CronJob")}
    assert sorted(cronjobs) == sorted(HOURLY + DAILY)
    for name, spec in cronjobs.items():
        minute, hour, *rest = spec["schedule"].split()
        assert minute.isdecimal(), spec["schedule"]
        assert rest == ["*", "*", "*"], spec["schedule"]
        assert hour == "*" if name in HOURLY else hour.isdecimal(), spec["schedule"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["successfulJobsHistoryLimit"] <= 3
        assert spec["failedJobsHistoryLimit"] <= 3
        job = spec["jobTemplate"]["spec"]
        assert 0 < job["activeDeadlineSeconds"] < (HOUR_S if name in HOURLY else DAY_S)
        assert 0 <= job["backoffLimit"] <= 2
    assert len({spec["schedule"] for spec in cronjobs.values()}) == len(cronjobs), "they begin apart"


def test_a_jobs_pod_may_do_little_and_its_needs_are_said() -> None:
    for pod in pods():
        [container] = pod["containers"]
        assert pod["restartPolicy"] == "Never"
        assert pod["serviceAccountName"] == "kafscale-jobs"
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "variables of services would be taken for settings"
        assert_confined(pod["securityContext"], container["securityContext"])
        assert_places(pod["volumes"], container["volumeMounts"])
        assert_settings(container)
        for kind in ("requests", "limits"):
            assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"][kind])
    [account] = of_kind(rendered(CRONJOBS), "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_applications_spread_compaction_and_export_over_executors() -> None:
    found = {each["metadata"]["name"]: each["spec"] for each in applications()}
    assert sorted(found) == ["kafscale-compaction", "kafscale-export"]
    for spec in found.values():
        template = spec["template"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert template["sparkConf"]["spark.speculation"] == "false"
        assert template["restartPolicy"]["onFailureRetries"] <= 2
        assert 1 <= template["dynamicAllocation"]["maxExecutors"] <= 100
        for role in (template["driver"], template["executor"]):
            assert role["memoryOverhead"], "Python works beside the JVM"
            assert role["template"]["spec"]["enableServiceLinks"] is False
            assert_confined(role["podSecurityContext"], role["securityContext"])
            assert_places(template["volumes"], role["volumeMounts"])
            assert_settings(role)
        assert template["executor"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert found["kafscale-export"]["suspend"] is True, "nobody has said yet what goes where"


def test_the_patch_of_the_documentation_sends_topics_to_a_volume_of_all_pods(tmp_path: Path) -> None:
    [patches] = re.findall(r"```yaml\n(patches:.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    manifests = patched(APPLICATIONS, patches, tmp_path)
    for manifest in manifests:
        check(manifest, RELEASES[-1])
    [found] = [each for each in manifests if each["metadata"]["name"] == "kafscale-export"]
    template = found["spec"]["template"]
    assert found["spec"]["suspend"] is False
    target = template["arguments"][template["arguments"].index("--to") + 1]
    [claimed] = [volume["name"] for volume in template["volumes"] if "persistentVolumeClaim" in volume]
    for role in (template["driver"], template["executor"]):
        assert {"name": claimed, "mountPath": target} in role["volumeMounts"]


def test_only_the_driver_may_ask_kubernetes_and_only_for_what_belongs_to_it() -> None:
    manifests = rendered(APPLICATIONS)
    [role], [binding] = of_kind(manifests, "Role"), of_kind(manifests, "RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["kafscale-spark-driver"]
    assert {name for rule in role["rules"] for name in rule["resources"]} == {
        *("pods", "services", "configmaps", "persistentvolumeclaims")
    }
    for account in of_kind(manifests, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for each in applications():
        template = each["spec"]["template"]
        assert template["driver"]["serviceAccount"] == "kafscale-spark-driver"
        assert template["executor"]["serviceAccount"] == "kafscale-spark-executor"


def pods() -> Iterator[Manifest]:
    found = [
        each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for each in of_kind(rendered(CRONJOBS), "CronJob")
    ]
    assert found
    yield from found


def applications() -> Iterator[Manifest]:
    return of_kind(rendered(APPLICATIONS), "ScheduledSparkApplication")


def assert_confined(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}


def assert_places(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> None:
    """What may be written is bounded, and goes with the pod. A Secret is only read, and need not be there."""
    limits = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in volumes if "emptyDir" in volume}
    secrets = {volume["name"]: volume["secret"] for volume in volumes if "secret" in volume}
    written = [mount for mount in mounts if mount["name"] in limits]
    assert {mount["mountPath"] for mount in written} == set(WRITABLE)
    for mount in mounts:
        assert mount in written or (mount["readOnly"] and secrets[mount["name"]]["optional"])


def assert_settings(container: dict[str, Any]) -> None:
    """All jobs take the cluster's address from one place, and no manifest holds a key."""
    settings, credentials = container["envFrom"]
    assert settings["configMapRef"]["name"].startswith("kafscale-settings")
    assert credentials["secretRef"]["name"] == "kafscale-credentials"
    assert not [each for each in container.get("env", ()) if each["name"].startswith("KAFSCALE_")]
