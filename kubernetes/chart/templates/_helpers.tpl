{{- /* SPDX-License-Identifier: GPL-2.0-or-later */ -}}

{{- define "fusetune.name" -}}
{{- if contains "fusetune" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-fusetune{{ end }}
{{- end }}

{{- define "fusetune.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "fusetune.selector" -}}
app.kubernetes.io/name: fusetune
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "fusetune.labels" -}}
{{ include "fusetune.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What every pod has: the node's processes, no token, and rights of a container's own. */ -}}
{{- define "fusetune.pod" -}}
hostPID: true
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  seccompProfile: {type: RuntimeDefault}
  # The default profile of container runtimes forbids to write below /sys and to look at processes.
  appArmorProfile: {type: Unconfined}
  {{- with .Values.seLinuxType }}
  seLinuxOptions: {type: {{ . | quote }}}
  {{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "fusetune.container" -}}
image: {{ include "fusetune.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- /* Its arguments: the capabilities. Root, since the files of a bdi are root's. */ -}}
{{- define "fusetune.rights" -}}
securityContext:
  runAsUser: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- with . }}
    add: {{ toJson . }}
    {{- end }}
{{- end }}

{{- /* The node as fusetune sees it. sysfs is read-only but for the bdi devices; fusectl is a mount of
its own below it. */ -}}
{{- define "fusetune.mounts" -}}
- {name: sys, mountPath: /sys, readOnly: true, mountPropagation: HostToContainer}
- {name: bdi, mountPath: /sys/devices/virtual/bdi}
{{- /* Each file by itself: everybody can write the directory that the kubelet makes of a ConfigMap,
and fusetune ignores files in such a directory. */}}
{{- range $key, $path := include "fusetune.files" . | fromYaml }}
- {name: config, mountPath: {{ printf "/etc/fusetune/%s" $path | quote }}, subPath: {{ $key | quote }}, readOnly: true}
{{- end }}
- {name: state, mountPath: /var/lib/fusetune}
- {name: run, mountPath: /run/fusetune}
- {name: logs, mountPath: /var/log/pods, readOnly: true}
{{- range $number, $path := .Values.paths }}
- {name: path-{{ $number }}, mountPath: {{ $path | quote }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}

{{- define "fusetune.volumes" -}}
- {name: sys, hostPath: {path: /sys, type: Directory}}
- {name: bdi, hostPath: {path: /sys/devices/virtual/bdi, type: Directory}}
- {name: state, hostPath: {path: /var/lib/fusetune, type: DirectoryOrCreate}}
- {name: run, hostPath: {path: /run/fusetune, type: DirectoryOrCreate}}
# The names of the directories there tell a pod's namespace.
- {name: logs, hostPath: {path: /var/log/pods, type: DirectoryOrCreate}}
{{- range $number, $path := .Values.paths }}
- {name: path-{{ $number }}, hostPath: {path: {{ $path | quote }}, type: Directory}}
{{- end }}
- {name: config, configMap: {name: {{ include "fusetune.name" . }}}}
{{- end }}

{{- /* The keys of the ConfigMap, and the files of /etc/fusetune that they are. */ -}}
{{- define "fusetune.files" -}}
{{- if .Values.config }}
fusetune.toml: fusetune.toml
{{- end }}
{{- if .Values.signers }}
allowed_signers: allowed_signers
{{- end }}
{{- range $name, $text := .Values.mounts }}
{{ printf "mounts.d_%s" $name | quote }}: {{ printf "mounts.d/%s" $name | quote }}
{{- end }}
{{- end }}
