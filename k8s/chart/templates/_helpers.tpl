{{/* Of an object in this namespace: (dict "root" $ "name" … "component" … "labels" … "annotations" …) */}}
{{- define "kafscale.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- with .component }}
  {{- include "kafscale.selector" . | nindent 2 }}
  {{- end }}
  app.kubernetes.io/part-of: kafscale
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kafscale.selector" -}}
app.kubernetes.io/name: kafscale
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* A policy's peer: the pods of these services. */}}
{{- define "kafscale.pods" -}}
matchLabels:
  app.kubernetes.io/name: kafscale
matchExpressions:
  - {key: app.kubernetes.io/component, operator: {{ .operator | default "In" }}, values: [{{ join ", " .services }}]}
{{- end }}

{{/* The settings of all services: the values, and what the chart's options need. */}}
{{- define "kafscale.settings" -}}
{{- $made := dict }}
{{- if .Values.etcd.inside }}
{{- $_ := set $made "KAFSCALE_ETCD_ENDPOINTS" "https://etcd-0.etcd:2379,https://etcd-1.etcd:2379,https://etcd-2.etcd:2379" }}
{{- $_ := set $made "KAFSCALE_ETCD_QUOTA_BYTES" "8589934592" }}
{{- $_ := set $made "KAFSCALE_ETCD_CA" "/etc/kafscale/etcd-certificate/ca.crt" }}
{{- else }}
{{- $_ := set $made "KAFSCALE_ETCD_ENDPOINTS" (required "etcd.endpoints: name your etcd, or set etcd.inside" .Values.etcd.endpoints) }}
{{- if .Values.etcd.ca }}
{{- $_ := set $made "KAFSCALE_ETCD_CA" "/etc/kafscale/etcd-ca/ca.crt" }}
{{- end }}
{{- end }}
{{- if or .Values.etcd.inside .Values.etcd.certificate }}
{{- $_ := set $made "KAFSCALE_ETCD_CERT" "/etc/kafscale/etcd-certificate/tls.crt" }}
{{- $_ := set $made "KAFSCALE_ETCD_KEY" "/etc/kafscale/etcd-certificate/tls.key" }}
{{- end }}
{{- if .Values.authorization }}
{{- $_ := set $made "KAFSCALE_AUTHORIZER" "acl" }}
{{- $_ := set $made "KAFSCALE_SUPER_USERS" .Values.superUsers }}
{{- end }}
{{- if .Values.traces.enabled }}
{{- $_ := set $made "KAFSCALE_TRACE_RATIO" .Values.traces.ratio }}
{{- $_ := set $made "KAFSCALE_OTLP_ENDPOINT" .Values.traces.endpoint }}
{{- end }}
{{- range $name, $value := mergeOverwrite $made .Values.settings }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "kafscale.outside" -}}
{{- if eq .Values.outside.kind "one-address" }}
address: {{ required "outside.address: host:port for clients outside" .Values.outside.address | quote }}
{{- else }}
domain: {{ required "outside.domain: the domain above the names of the front doors" .Values.outside.domain | quote }}
{{- end }}
{{- end }}

{{/* The Secrets that a service mounts, by the name of the volume: the Secret, and where. */}}
{{- define "kafscale.secrets" -}}
{{- $values := .root.Values }}
{{- if and $values.etcd.ca (not $values.etcd.inside) }}
etcd-ca: {secret: kafscale-etcd-ca, at: /etc/kafscale/etcd-ca}
{{- end }}
{{- if or $values.etcd.inside $values.etcd.certificate }}
etcd-certificate: {secret: kafscale-etcd-certificate, at: /etc/kafscale/etcd-certificate}
{{- end }}
{{- if and $values.internalTls (ne .service "upkeep") }}
internal-tls: {secret: kafscale-internal-{{ .service }}, at: /etc/kafscale/internal-tls}
{{- end }}
{{- if and $values.tls (eq .service "frontdoor") }}
tls: {secret: kafscale-tls, at: /etc/kafscale/tls}
{{- end }}
{{- if and $values.authorization (eq .service "admin") }}
first-users: {secret: kafscale-first-users, at: /etc/kafscale/first-users}
{{- end }}
{{- if and $values.redis.keys (has .service (list "produce" "fetch")) }}
redis-keys: {secret: kafscale-redis-keys, at: /etc/kafscale/redis-keys}
{{- end }}
{{- end }}

{{/* The variables of a service's container. A variable may refer only to variables above it. */}}
{{- define "kafscale.env" -}}
{{- $values := .root.Values }}
{{- $outside := ne $values.outside.kind "none" }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: KAFSCALE_GRPC_ADVERTISE
  value: $(POD_IP):7000
# Newer clusters copy the node's zone to the pod. On older clusters this is empty, which means no rack.
- name: KAFSCALE_RACK
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
{{- range list "KAFSCALE_ETCD_USER" "KAFSCALE_ETCD_PASSWORD" "KAFSCALE_S3_ACCESS_KEY_ID" "KAFSCALE_S3_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: kafscale-credentials, key: {{ . }}, optional: true}}
{{- end }}
{{- range $name, $value := .own.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- if and $values.internalTls (ne .service "upkeep") }}
- {name: KAFSCALE_GRPC_CERTIFICATE, value: /etc/kafscale/internal-tls/tls.crt}
- {name: KAFSCALE_GRPC_KEY, value: /etc/kafscale/internal-tls/tls.key}
- {name: KAFSCALE_GRPC_CA, value: /etc/kafscale/internal-tls/ca.crt}
{{- end }}
{{- if has .service (list "produce" "fetch") }}
- name: KAFSCALE_REDIS_URL
  {{- if $values.redis.enabled }}
  valueFrom: {secretKeyRef: {name: kafscale-redis, key: KAFSCALE_REDIS_URL, optional: false}}
  {{- else }}
  valueFrom: {secretKeyRef: {name: kafscale-credentials, key: KAFSCALE_REDIS_URL, optional: true}}
  {{- end }}
{{- if $values.redis.keys }}
- {name: KAFSCALE_REDIS_MAC_KEY_FILE, value: /etc/kafscale/redis-keys/keys}
{{- end }}
{{- end }}
{{- if and $values.authorization (eq .service "admin") }}
- {name: KAFSCALE_BOOTSTRAP_USERS_FILE, value: /etc/kafscale/first-users/users}
{{- end }}
{{- if eq .service "frontdoor" }}
{{- $advertised := "PLAINTEXT://$(POD_NAME).kafscale-frontdoor.$(POD_NAMESPACE).svc:9092" }}
{{- if eq $values.outside.kind "one-address" }}
{{- $advertised = printf "%s,OUTSIDE://$(OUTSIDE_ADDRESS)" $advertised }}
- name: OUTSIDE_ADDRESS
  valueFrom: {configMapKeyRef: {name: kafscale-outside, key: address}}
{{- else if $outside }}
{{- $advertised = printf "%s,OUTSIDE://$(POD_NAME).$(OUTSIDE_DOMAIN):9094" $advertised }}
- name: OUTSIDE_DOMAIN
  valueFrom: {configMapKeyRef: {name: kafscale-outside, key: domain}}
{{- end }}
# Longer than clients and resolvers keep the address that its name had before.
- {name: KAFSCALE_FRONTDOOR_ANNOUNCE_AFTER_MS, value: "35000"}
# Without a host: IPv4 and IPv6.
- {name: KAFSCALE_LISTENERS, value: "PLAINTEXT://:9092{{ if $outside }},OUTSIDE://:9094{{ end }}"}
- {name: KAFSCALE_ADVERTISED_LISTENERS, value: {{ $advertised | quote }}}
{{- if $values.clusterQuotas }}
- {name: KAFSCALE_QUOTA_SCOPE, value: cluster}
{{- end }}
{{- if $values.tls }}
- {name: KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP, value: "OUTSIDE:{{ if $values.authorization }}SASL_{{ end }}SSL"}
- {name: KAFSCALE_SSL_CERTIFICATE, value: /etc/kafscale/tls/tls.crt}
- {name: KAFSCALE_SSL_KEY, value: /etc/kafscale/tls/tls.key}
{{- end }}
{{- end }}
{{- end }}

{{/* The objects of files of kustomize's components, in this namespace: (dict "root" $ "files" (list "redis/redis.yaml") "labels" …) */}}
{{- define "kafscale.files" }}
{{- $root := .root }}
{{- $labels := .labels | default dict }}
{{- range .files }}
{{- range $text := regexSplit "(?m)^---$" ($root.Files.Get (printf "files/%s" .)) -1 }}
{{- $object := fromYaml $text }}
{{- if $object.kind }}
---
{{ include "kafscale.placed" (dict "root" $root "object" $object "labels" $labels) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* An object with the namespace and the labels of the release. */}}
{{- define "kafscale.placed" }}
{{- $object := .object }}
{{- if ne $object.kind "PriorityClass" }}
{{- $_ := set $object.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- $own := dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart }}
{{- $_ := set $object.metadata "labels" (merge dict .labels $own ($object.metadata.labels | default dict)) }}
{{- toYaml $object }}
{{- end }}
