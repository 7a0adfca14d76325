# The image of one service: docker build --build-arg SERVICE=produce -t kafscale-produce .
# BASE is a Debian with Python 3.11 or newer and its venv. Package indexes come from the base or from pip's variables.
# The first stage installs the locked packages once for all services; each service then keeps only what it needs.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/kafscale
COPY requirements.lock /src/
RUN /opt/kafscale/bin/python -m pip install --quiet --require-hashes -r /src/requirements.lock
COPY libs /src/libs
COPY services /src/services
COPY console /src/console
COPY spark/lake /src/spark/lake
COPY spark/upkeep /src/spark/upkeep
RUN cd /src && /opt/kafscale/bin/python -m pip install --quiet --no-deps \
        ./libs/wire ./libs/access ./libs/storage ./libs/log ./libs/runtime ./libs/client ./libs/operations \
        ./services/* ./console ./spark/lake ./spark/upkeep
COPY tools/locked.py tools/trim.sh /src/tools/
ARG SERVICE
# This also imports modules that are loaded on first use: AWS's tools, in upkeep the readers of records, in the console the decoders.
# Compiles bytecode here, because the file system is read-only later.
RUN test -n "$SERVICE" || { echo 'which service? --build-arg SERVICE=produce' >&2; exit 1; } \
    && /opt/kafscale/bin/python /src/tools/locked.py "kafscale-$SERVICE" > /src/unneeded \
    && xargs -r /opt/kafscale/bin/python -m pip uninstall --quiet --yes < /src/unneeded \
    && /opt/kafscale/bin/python -m pip uninstall --quiet --yes setuptools pip \
    && sh /src/tools/trim.sh /opt/kafscale \
    && /opt/kafscale/bin/python -c "import kafscale.$SERVICE.__main__, aiobotocore.session" \
    && { test "$SERVICE" != upkeep || /opt/kafscale/bin/python -c "import kafscale.lake.compaction.run, kafscale.lake.lag.prometheus, kafscale.lake.lag.sampler"; } \
    && { test "$SERVICE" != console || /opt/kafscale/bin/python -c "import fastavro, fastavro.schema, grpc_tools.protoc"; } \
    && /opt/kafscale/bin/python -m compileall -q /opt/kafscale/lib \
    && printf '#!/bin/sh\nexec /opt/kafscale/bin/python -m kafscale.runtime.launch kafscale.%s "$@"\n' "$SERVICE" > /opt/kafscale/bin/service \
    && chmod 755 /opt/kafscale/bin/service

FROM ${BASE}
RUN groupadd --gid 10001 kafscale \
    && useradd --uid 10001 --gid kafscale --home-dir /tmp --no-create-home --shell /usr/sbin/nologin kafscale \
    && rm -rf /var/log/*
COPY --from=build /opt/kafscale /opt/kafscale
# Variables of the allocator and of gRPC; kafscale.runtime.memory_tuning gives the reasons.
ENV PATH=/opt/kafscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MALLOC_MMAP_THRESHOLD_=134217728 \
    MALLOC_TRIM_THRESHOLD_=536870912 \
    MALLOC_TOP_PAD_=16777216 \
    GRPC_VERBOSITY=ERROR \
    GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener \
    KAFSCALE_GRPC_LISTEN=0.0.0.0:7000 \
    KAFSCALE_HTTP_LISTEN=0.0.0.0:8000 \
    KAFSCALE_LISTENERS=PLAINTEXT://:9092
USER 10001:10001
WORKDIR /tmp
EXPOSE 7000 8000 9092
# Readiness, not liveness: a program that waits for this container wants to send it requests.
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s --retries=6 CMD ["python", "-m", "kafscale.runtime.healthcheck", "/readyz"]
ENTRYPOINT ["service"]
