// Reports when the kernel says that this virtual machine was resumed from a snapshot or cloned: the event NEW_VMGENID
// of its vmgenid driver. One thread of its own, asleep until something happens.
#pragma once

#include <thread>

#include "base/log.h"

namespace idetcd::node {

class VmGeneration {
 public:
  // `on_change` is called on the monitor's thread.
  VmGeneration(std::function<void()> on_change, const Logger& log);
  ~VmGeneration();  // waits for on_change, if it is being called
  VmGeneration(const VmGeneration&) = delete;
  VmGeneration& operator=(const VmGeneration&) = delete;

  // Whether a kernel event (strings that end in NUL, netlink(7), NETLINK_KOBJECT_UEVENT) reports a new generation.
  static bool isNewGeneration(std::string_view event);

 private:
  bool open();
  void run();
  bool receive();

  const std::function<void()> on_change_;
  int netlink_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace idetcd::node
