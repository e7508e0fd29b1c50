{{- define "arclight.name" -}}
{{- if contains "arclight" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-arclight" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "arclight.selector" -}}
app.kubernetes.io/name: arclight
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "arclight.labels" -}}
{{ include "arclight.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
