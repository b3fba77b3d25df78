# An autoscaling group of machines of one image, which take the names worker1, worker2, ... by themselves.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "subnets" {
  description = "IDs of the subnets. Their machines reach etcd, and where user-data.yaml has the package from."
  type        = list(string)
}

variable "size" {
  description = "How many machines there are: as many as limit in user-data.yaml at most."
  type        = number
  default     = 5
}

variable "instance_type" {
  type    = string
  default = "t3.small"
}

data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"] # Debian

  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

resource "aws_launch_template" "worker" {
  name_prefix   = "worker-"
  image_id      = data.aws_ami.debian.id
  instance_type = var.instance_type
  user_data     = filebase64("${path.module}/user-data.yaml")
}

resource "aws_autoscaling_group" "worker" {
  name                = "worker"
  vpc_zone_identifier = var.subnets
  min_size            = 0
  max_size            = 100 # limit in user-data.yaml
  desired_capacity    = var.size

  launch_template {
    id      = aws_launch_template.worker.id
    version = aws_launch_template.worker.latest_version
  }

  # A change of user-data.yaml replaces the machines, one tenth at a time.
  instance_refresh {
    strategy = "Rolling"
  }
}
