{{- define "diana.name" -}}
{{- if contains "diana" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-diana" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "diana.selector" -}}
app.kubernetes.io/name: diana
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "diana.labels" -}}
{{ include "diana.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The ports of the mode, by name. The metrics are at the last one. */ -}}
{{- define "diana.ports" -}}
{{- if eq .Values.mode "gateway" }}
http: 8080
{{- else if eq .Values.mode "decisions" }}
check: 9100
grpc: 8081
{{- else }}
http: 8080
grpc: 8081
{{- end }}
admin: 9090
{{- end }}

{{- /* The configuration with redis. */ -}}
{{- define "diana.config" -}}
{{- $config := deepCopy .Values.config }}
{{- with .Values.redis }}{{ if .url }}
{{- $redis := dict "url" .url }}
{{- if .passwordSecret.name }}{{ $_ := set $redis "password" "env:DIANA_REDIS_PASSWORD" }}{{ end }}
{{- $_ := set $config "redis" $redis }}
{{- end }}{{ end }}
{{- toYaml $config }}
{{- end }}
