#!/bin/sh
# Roles and users of the cluster default in etcd, by `kafscale etcd-roles`. Run it once, on an etcd without them:
# `kafscale etcd-roles --apply` also changes what is there.
# PASSWORDS is a directory with one file for each user, whose name is the role: produce, fetch, and so on.
# ETCDCTL_* name the etcd.
set -eu

etcdctl role add kafscale-default-frontdoor
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/acl/ /kafscale/default/acl0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/cs/ /kafscale/default/cs0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/live/admin/ /kafscale/default/live/admin0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/live/coordinator/ /kafscale/default/live/coordinator0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/live/fetch/ /kafscale/default/live/fetch0
etcdctl role grant-permission kafscale-default-frontdoor readwrite /kafscale/default/live/frontdoor/ /kafscale/default/live/frontdoor0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/live/produce/ /kafscale/default/live/produce0
etcdctl role grant-permission kafscale-default-frontdoor readwrite /kafscale/default/node/frontdoor/ /kafscale/default/node/frontdoor0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/quota/ /kafscale/default/quota0
etcdctl role grant-permission kafscale-default-frontdoor readwrite /kafscale/default/secret/decoy-key
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/t/ /kafscale/default/t0
etcdctl role grant-permission kafscale-default-frontdoor read /kafscale/default/user/ /kafscale/default/user0
etcdctl user add kafscale-default-frontdoor --interactive=false < "$PASSWORDS/frontdoor"
etcdctl user grant-role kafscale-default-frontdoor kafscale-default-frontdoor

etcdctl role add kafscale-default-produce
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/acl/ /kafscale/default/acl0
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/cs/ /kafscale/default/cs0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/h/ /kafscale/default/h0
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/live/coordinator/ /kafscale/default/live/coordinator0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/live/produce/ /kafscale/default/live/produce0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/m/ /kafscale/default/m0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/node/produce/ /kafscale/default/node/produce0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-produce readwrite /kafscale/default/p/ /kafscale/default/p0
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/settle/ /kafscale/default/settle0
etcdctl role grant-permission kafscale-default-produce read /kafscale/default/t/ /kafscale/default/t0
etcdctl user add kafscale-default-produce --interactive=false < "$PASSWORDS/produce"
etcdctl user grant-role kafscale-default-produce kafscale-default-produce

etcdctl role add kafscale-default-fetch
etcdctl role grant-permission kafscale-default-fetch read /kafscale/default/acl/ /kafscale/default/acl0
etcdctl role grant-permission kafscale-default-fetch read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-fetch readwrite /kafscale/default/live/fetch/ /kafscale/default/live/fetch0
etcdctl role grant-permission kafscale-default-fetch read /kafscale/default/m/ /kafscale/default/p0
etcdctl role grant-permission kafscale-default-fetch readwrite /kafscale/default/node/fetch/ /kafscale/default/node/fetch0
etcdctl role grant-permission kafscale-default-fetch read /kafscale/default/t/ /kafscale/default/t0
etcdctl user add kafscale-default-fetch --interactive=false < "$PASSWORDS/fetch"
etcdctl user grant-role kafscale-default-fetch kafscale-default-fetch

etcdctl role add kafscale-default-coordinator
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/acl/ /kafscale/default/acl0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/c/ /kafscale/default/c0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/cp/ /kafscale/default/cp0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/cs/ /kafscale/default/cs0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/g/ /kafscale/default/g0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/gc/ /kafscale/default/gc0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/live/coordinator/ /kafscale/default/live/coordinator0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/live/frontdoor/ /kafscale/default/live/frontdoor0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/live/produce/ /kafscale/default/live/produce0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/node/coordinator/ /kafscale/default/node/coordinator0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/pid/ /kafscale/default/pid0
etcdctl role grant-permission kafscale-default-coordinator read /kafscale/default/t/ /kafscale/default/t0
etcdctl role grant-permission kafscale-default-coordinator readwrite /kafscale/default/x/ /kafscale/default/x0
etcdctl user add kafscale-default-coordinator --interactive=false < "$PASSWORDS/coordinator"
etcdctl user grant-role kafscale-default-coordinator kafscale-default-coordinator

etcdctl role add kafscale-default-admin
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/acl/ /kafscale/default/acl0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/e/ /kafscale/default/e0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/gc/ /kafscale/default/gc0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/h/ /kafscale/default/h0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/live/admin/ /kafscale/default/live/admin0
etcdctl role grant-permission kafscale-default-admin read /kafscale/default/live/frontdoor/ /kafscale/default/live/frontdoor0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/m/ /kafscale/default/m0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/node/admin/ /kafscale/default/node/admin0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/p/ /kafscale/default/p0
etcdctl role grant-permission kafscale-default-admin write /kafscale/default/pass/ /kafscale/default/pass0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/quota/ /kafscale/default/quota0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/t/ /kafscale/default/t0
etcdctl role grant-permission kafscale-default-admin readwrite /kafscale/default/user/ /kafscale/default/user0
etcdctl user add kafscale-default-admin --interactive=false < "$PASSWORDS/admin"
etcdctl user grant-role kafscale-default-admin kafscale-default-admin

etcdctl role add kafscale-default-upkeep
etcdctl role grant-permission kafscale-default-upkeep read /kafscale/default/c/ /kafscale/default/c0
etcdctl role grant-permission kafscale-default-upkeep read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-upkeep read /kafscale/default/g/ /kafscale/default/g0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/h/ /kafscale/default/h0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/job-place/ /kafscale/default/job-place0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/job/ /kafscale/default/job0
etcdctl role grant-permission kafscale-default-upkeep read /kafscale/default/live/produce/ /kafscale/default/live/produce0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/live/upkeep/ /kafscale/default/live/upkeep0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/m/ /kafscale/default/m0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/node/upkeep/ /kafscale/default/node/upkeep0
etcdctl role grant-permission kafscale-default-upkeep write /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/p/ /kafscale/default/p0
etcdctl role grant-permission kafscale-default-upkeep readwrite /kafscale/default/pass/ /kafscale/default/pass0
etcdctl role grant-permission kafscale-default-upkeep read /kafscale/default/t/ /kafscale/default/t0
etcdctl user add kafscale-default-upkeep --interactive=false < "$PASSWORDS/upkeep"
etcdctl user grant-role kafscale-default-upkeep kafscale-default-upkeep

etcdctl role add kafscale-default-operator
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/c/ /kafscale/default/c0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/cluster
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/cp/ /kafscale/default/cp0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/cs/ /kafscale/default/cs0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/g/ /kafscale/default/g0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/h/ /kafscale/default/h0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/live/ /kafscale/default/live0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/m/ /kafscale/default/m0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/o/ /kafscale/default/o0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/p/ /kafscale/default/p0
etcdctl role grant-permission kafscale-default-operator write /kafscale/default/settle/ /kafscale/default/settle0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/t/ /kafscale/default/t0
etcdctl role grant-permission kafscale-default-operator read /kafscale/default/x/ /kafscale/default/x0
etcdctl user add kafscale-default-operator --interactive=false < "$PASSWORDS/operator"
etcdctl user grant-role kafscale-default-operator kafscale-default-operator

# When all processes have their user and password, and root has a password:
#   etcdctl role add root
#   etcdctl user add root --interactive=false < "$PASSWORDS/root"
#   etcdctl user grant-role root root
#   etcdctl auth enable
