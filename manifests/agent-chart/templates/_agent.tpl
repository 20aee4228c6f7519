{{- define "agent.labels" -}}
karmada.io/system: "true"
{{ include "agent.release" . }}
{{- end -}}

{{/* The labels that Helm's conventions ask for. */}}
{{- define "agent.release" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The command of the agent, in the order of `flotilla register`. */}}
{{- define "agent.command" -}}
{{- $values := .Values -}}
{{- $command := list "flotilla" "agent" "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig" -}}
{{- $command = append $command (printf "--cluster-name=%s" $values.clusterName) -}}
{{- $command = append $command (printf "--agent-namespace=%s" .Release.Namespace) -}}
{{- with $values.clusterApiEndpoint }}{{ $command = append $command (printf "--cluster-api-endpoint=%s" .) }}{{ end -}}
{{- $command = append $command (printf "--cluster-namespace=%s" $values.clusterNamespace) -}}
{{- $command = append $command (printf "--report-secrets=%s" (join "," $values.reportSecrets)) -}}
{{- with $values.clusterProvider }}{{ $command = append $command (printf "--cluster-provider=%s" .) }}{{ end -}}
{{- with $values.clusterRegion }}{{ $command = append $command (printf "--cluster-region=%s" .) }}{{ end -}}
{{- with $values.proxyServerAddress }}{{ $command = append $command (printf "--proxy-server-address=%s" .) }}{{ end -}}
{{- with $values.clusterZones }}{{ $command = append $command (printf "--cluster-zones=%s" (join "," .)) }}{{ end -}}
{{- with $values.featureGates -}}
{{- $gates := list -}}
{{- range $gate, $enabled := . }}{{ $gates = append $gates (printf "%s=%t" $gate $enabled) }}{{ end -}}
{{- $command = append $command (printf "--feature-gates=%s" (join "," $gates)) -}}
{{- end -}}
{{- if gt (int $values.replicas) 1 -}}
{{- $command = append $command "--leader-elect" -}}
{{- $command = append $command (printf "--leader-elect-resource-namespace=%s" $values.clusterNamespace) -}}
{{- end -}}
{{- if $values.enableCertRotation }}{{ $command = append $command "--enable-cert-rotation" }}{{ end -}}
{{- toYaml (concat $command $values.extraArgs) -}}
{{- end -}}
