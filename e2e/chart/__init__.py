"""The Helm chart, made of the same manifests as the kustomize overlays."""
