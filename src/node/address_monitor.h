// Reports when the addresses of this machine may have changed: links, addresses and routes, as the kernel reports them
// (rtnetlink(7)). One thread of its own.
#pragma once

#include <thread>

#include "base/log.h"

namespace idetcd::node {

class AddressMonitor {
 public:
  struct Options {
    std::chrono::milliseconds settle{1000};     // changes come in bursts: reported once it was quiet for so long,
    std::chrono::milliseconds at_latest{5000};  // or if it never gets quiet
  };

  // `on_change` is called on the monitor's thread; once at the beginning, for what happened before.
  AddressMonitor(Options options, std::function<void()> on_change, Logger log);
  ~AddressMonitor();  // waits for on_change, if it is being called
  AddressMonitor(const AddressMonitor&) = delete;
  AddressMonitor& operator=(const AddressMonitor&) = delete;

 private:
  bool open();
  void run();
  bool wait(std::chrono::nanoseconds timeout, bool* news);
  void drain();

  const Options options_;
  const std::function<void()> on_change_;
  const Logger log_;
  int netlink_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace idetcd::node
