{{/* The objects of a file, as a list; its default namespace is replaced by that of the release. */}}
{{- define "flotilla.objects" -}}
{{- $objects := list -}}
{{- $namespace := .root.Release.Namespace -}}
{{- range splitList "\n---\n" (.root.Files.Get (printf "files/%s.yaml" .file)) -}}
{{- $objects = append $objects (fromYaml (replace "flotilla-system" $namespace .)) -}}
{{- end -}}
{{- toYaml $objects -}}
{{- end -}}

{{/* The labels that Helm's conventions ask for, beside those of the files. */}}
{{- define "flotilla.labelled" -}}
{{- $labels := dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- $object := .object -}}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict)) -}}
{{- toYaml $object -}}
{{- end -}}

{{/* The labels of the console's objects. */}}
{{- define "flotilla.consoleLabels" -}}
app.kubernetes.io/name: flotilla
app.kubernetes.io/component: console
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The flags of `flotilla serve`. */}}
{{- define "flotilla.args" -}}
{{- $args := list -}}
{{- $etcd := .Values.etcd -}}
{{- range .args -}}
{{- if and $etcd.servers (hasPrefix "--etcd-" .) -}}
{{- else -}}
{{- $args = append $args . -}}
{{- end -}}
{{- end -}}
{{- with $etcd.servers -}}
{{- $args = append $args (printf "--etcd-servers=%s" (join "," .)) -}}
{{- end -}}
{{- with $etcd.prefix -}}
{{- $args = append $args (printf "--etcd-prefix=%s" .) -}}
{{- end -}}
{{- if $etcd.secretName -}}
{{- $args = concat $args (list "--etcd-cafile=/etc/flotilla/etcd/ca.crt" "--etcd-certfile=/etc/flotilla/etcd/tls.crt" "--etcd-keyfile=/etc/flotilla/etcd/tls.key") -}}
{{- end -}}
{{- if ne .Values.hostWorkloads "refuse" -}}
{{- $args = append $args (printf "--host-workloads=%s" .Values.hostWorkloads) -}}
{{- end -}}
{{- if .Values.awaitTakeover -}}
{{- $args = append $args "--await-takeover" -}}
{{- end -}}
{{- if ne .Values.metricsApiServices "Never" -}}
{{- $args = append $args (printf "--metrics-api-services=%s" .Values.metricsApiServices) -}}
{{- end -}}
{{- with .Values.featureGates -}}
{{- $gates := list -}}
{{- range $gate, $enabled := . -}}
{{- $gates = append $gates (printf "%s=%t" $gate $enabled) -}}
{{- end -}}
{{- $args = append $args (printf "--feature-gates=%s" (join "," $gates)) -}}
{{- end -}}
{{- toYaml (concat $args .Values.extraArgs) -}}
{{- end -}}
