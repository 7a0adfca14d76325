"""A listing's answer is a server's word: it is read strictly, whatever namespace and encoding it comes in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kafscale.storage.objects import ObjectInfo
from kafscale.storage.objects.s3_xml import BadAnswer, Page, list_query, parse_page

ITEM = "<Contents><Key>{}</Key><ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
END = "<IsTruncated>false</IsTruncated>"
MORE = "<IsTruncated>true</IsTruncated><NextContinuationToken>a/b+c=</NextContinuationToken>"


def answer(*parts: str, namespace: str = "") -> bytes:
    attribute = f' xmlns="{namespace}"' if namespace else ""
    text = f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult{attribute}>"
    return (text + "".join(parts) + "</ListBucketResult>").encode()


@pytest.mark.parametrize("namespace", ["", "http://s3.amazonaws.com/doc/2006-03-01/", "urn:other"])
def test_a_page_is_read_in_any_namespace(namespace: str) -> None:
    page = parse_page(answer(ITEM.format("a%2Fb"), ITEM.format("c"), MORE, namespace=namespace))
    found = tuple(ObjectInfo(key=key, etag="e", size=7) for key in ("a%2Fb", "c"))
    assert page == Page(found, "a/b+c=")


def test_keys_are_decoded_where_the_answer_says_that_they_are_encoded() -> None:
    page = parse_page(answer("<EncodingType>url</EncodingType>", ITEM.format("a%20b%2F%C3%A9%2B"), END))
    assert [info.key for info in page.objects] == ["a b/é+"]


def test_an_empty_bucket_is_one_page() -> None:
    assert parse_page(answer(END)) == Page((), None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot be read"),
        (b"\xff\xfe<", "cannot be read"),
        (b"<Error><Code>SlowDown</Code></Error>", "it is a Error"),
        (answer(ITEM.format("k"), END)[:-9], "cannot be read"),
        (answer("<Contents><Key>k</Key></Contents>", END), "Contents without ETag"),
        (answer(ITEM.format("k"), "<IsTruncated>true</IsTruncated>"), "without NextContinuationToken"),
        (answer(ITEM.format("k").replace("7", "many"), END), "cannot be read"),
        (b'<!DOCTYPE a [<!ENTITY e "x">]>' + answer(ITEM.format("&e;"), END), "document type"),
    ],
)
def test_what_is_no_listing_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BadAnswer, match=why):
        parse_page(body)


def test_the_next_page_is_asked_for_by_its_token_alone() -> None:
    assert dict(list_query("p", start_after="p/a"))["start-after"] == "p/a"
    onward = dict(list_query("p", start_after="p/a", token="t"))
    assert (onward["continuation-token"], "start-after" in onward) == ("t", False)


def test_aws_tools_are_loaded_for_what_the_settings_leave_out_alone() -> None:
    """They are half of a service's start."""
    program = """
import asyncio, sys
from kafscale.storage.objects import S3Config, StoreUnavailable
from kafscale.storage.objects.s3 import S3Store

async def probe(**known):
    store = S3Store(S3Config(bucket="b", endpoint="http://127.0.0.1:9", request_timeout_s=5, **known))
    try:
        await store.probe()
    except StoreUnavailable:
        print("botocore" in sys.modules)
    finally:
        await store.close()

asyncio.run(probe(access_key_id="a", secret_access_key="s"))
asyncio.run(probe())
"""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["False", "True"]
