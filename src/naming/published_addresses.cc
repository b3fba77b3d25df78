#include "naming/published_addresses.h"

namespace idetcd::naming {
namespace {

std::string textOf(const records::HostAddresses& addresses) {
  std::string text;
  for (const IpAddress& ip : addresses.list()) text += (text.empty() ? "" : " ") + ip.toString();
  return text.empty() ? "none" : text;
}

std::string textOf(const records::MemberAddresses& addresses) {
  std::string text = textOf(static_cast<const records::HostAddresses&>(addresses));
  for (const records::Network& network : addresses.networks)
    text += fmt::format(", {} as {}", textOf(network.addresses), network.name);
  return text;
}

// A network that the machine is without keeps the addresses that it had.
records::MemberAddresses withFormer(records::MemberAddresses found, const records::MemberAddresses& before) {
  for (records::Network& network : found.networks) {
    const auto former = std::ranges::find(before.networks, network.name, &records::Network::name);
    if (network.addresses.list().empty() && former != before.networks.end()) network.addresses = former->addresses;
  }
  return found;
}

}  // namespace

records::MemberAddresses PublishedAddresses::get() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

bool PublishedAddresses::update(const Result<node::NodeAddresses>& found) {
  const records::MemberAddresses before = get();
  const std::string why = found ? found->warning : found.error().message;
  if (!why.empty()) {
    if (std::exchange(trouble_, why) != why) log_.warning("the addresses stay {}: {}", textOf(before), why);
    return false;
  }
  trouble_.clear();
  if (std::exchange(missing_, found->missing_networks) != found->missing_networks && !missing_.empty())
    log_.warning("{}", missing_);
  records::MemberAddresses now = withFormer(found->addresses, before);
  if (now == before) return false;
  log_.info("this node's addresses are {} now, after {}", textOf(now), textOf(before));
  const std::lock_guard lock(mutex_);
  addresses_ = std::move(now);
  return true;
}

}  // namespace idetcd::naming
