"""`python -m kafscale.frontdoor`: a Kafka broker to its clients."""

import resource
import socket
import sys
from functools import partial
from typing import Final

import structlog
from kafscale.frontdoor.listeners.listeners import ListenersWrong, advertised, parse
from kafscale.frontdoor.listeners.tls_contexts import TlsFilesWrong, open_all
from kafscale.frontdoor.server import ROLE, bind_all, bind_for_workers, build
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.frontdoor.workers import build_workers
from kafscale.runtime.logs import configure_logs, say_why_it_ends
from kafscale.runtime.process import run_service
from kafscale.runtime.settings_load import USAGE_EXIT_CODE, load_settings

log = structlog.get_logger("kafscale.frontdoor")

OTHER_DESCRIPTORS: Final = 256


def allow_descriptors(connections_max: int) -> None:
    """Raises the soft limit of descriptors: each connection needs one, and the usual limit is 1024."""
    wanted = connections_max + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning(
            "fewer connections than max.connections can be open",
            connections_max=connections_max,
            descriptors=allowed,
        )


def main() -> int:
    settings = load_settings(FrontdoorSettings)
    configure_logs(level=settings.log_level, form=settings.log_format, service=ROLE)  # the next line may log
    allow_descriptors(settings.max_connections)
    try:
        # Workers read the files themselves. Files that cannot be used must end the parent, so it reads them too.
        tls = open_all(settings.securities().values())
        binds = parse(settings.listeners, setting="KAFSCALE_LISTENERS")
        if settings.frontdoor_workers == 1:
            doors = bind_all(binds)
            build_it = partial(build, doors=doors, tls=tls)
        else:
            of_workers = bind_for_workers(binds, settings.frontdoor_workers)
            doors = of_workers[0]
            build_it = partial(build_workers, doors=of_workers, argv=sys.argv[1:])
        shown = advertised(
            tuple(door.where for door in doors),
            settings.advertised_listeners,
            setting="KAFSCALE_ADVERTISED_LISTENERS",
            own_host=socket.gethostname(),
        )
    except (ListenersWrong, TlsFilesWrong) as wrong:
        say_why_it_ends(str(wrong))
        return USAGE_EXIT_CODE
    return run_service(ROLE, settings, build_it, listeners=shown)


if __name__ == "__main__":
    sys.exit(main())
