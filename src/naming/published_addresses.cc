#include "naming/published_addresses.h"

namespace idetcd::naming {
namespace {

std::string textOf(const records::HostAddresses& addresses) {
  std::string text;
  for (const IpAddress& ip : addresses.list()) text += (text.empty() ? "" : " ") + ip.toString();
  return text.empty() ? "none" : text;
}

}  // namespace

records::HostAddresses PublishedAddresses::get() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

bool PublishedAddresses::update(const Result<node::NodeAddresses>& found) {
  const records::HostAddresses before = get();
  const std::string why = found ? found->warning : found.error().message;
  if (!why.empty()) {
    if (std::exchange(trouble_, why) != why) log_.warning("the addresses stay {}: {}", textOf(before), why);
    return false;
  }
  trouble_.clear();
  if (found->addresses == before) return false;
  log_.info("this node's addresses are {} now, after {}", textOf(found->addresses), textOf(before));
  const std::lock_guard lock(mutex_);
  addresses_ = found->addresses;
  return true;
}

}  // namespace idetcd::naming
