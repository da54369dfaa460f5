# The chart by Terraform's Helm provider. Names of values: ../vc-egpu/values.yaml. Removal takes more than
# `terraform destroy`: see docs/operator.md#remove.
terraform {
  required_version = ">= 1.5"
  required_providers {
    helm = {
      source  = "hashicorp/helm"
      version = "~> 3.0"
    }
  }
}

variable "kubeconfig" {
  description = "Path of the cluster's kubeconfig."
  type        = string
}

variable "chart" {
  description = "Folder of the chart."
  type        = string
  default     = "../vc-egpu"
}

variable "values" {
  description = "Values of the chart; the others keep their defaults."
  type        = any
  default     = { volcano = false, isolation = true }
}

provider "helm" {
  kubernetes = { config_path = var.kubeconfig }
}

# The chart makes the namespace vc-egpu-system itself, so the release lives in another one.
resource "helm_release" "vc_egpu" {
  name         = "vc-egpu"
  namespace    = "default"
  chart        = var.chart
  values       = [yamlencode(var.values)]
  reset_values = false
  reuse_values = false
  wait         = true
  timeout      = 600
}
