#include "directive/xdp/pinned.h"

#include <numeric>

#include "base/clock.h"
#include "base/json.h"
#include "directive/xdp/kernel_counts.h"
#include "directive/xdp/settings.h"
#include "dns/labels.h"
#include "dns/name.h"
#include "kernel/maps.h"
#include "kernel/program.h"

namespace idetcd::directive {

namespace {

using nlohmann::json;
using Blocks = std::span<const resolve::Block>;

Result<XdpSettings> settingsOf(Blocks blocks) {
  const XdpSettings* found = nullptr;
  for (const resolve::Block& block : blocks) {
    if (found == nullptr) found = block.settings<XdpSettings>();
  }
  if (found == nullptr) return fail("the Corefile has no `xdp`");
  if (found->pin.empty())
    return fail("the Corefile's `xdp` has no `pin`: what the server attaches itself ends with it");
  return *found;
}

Result<json> attach(const XdpSettings& settings, const std::string& user) {
  const auto before = kernel::Maps::open(settings.pin);
  if (auto done = kernel::attachPinned(settings.attach, settings.pin, user); !done) return tl::unexpected(done.error());
  const auto now = kernel::Maps::open(settings.pin);
  if (!now) return tl::unexpected(now.error());
  const bool kept = before && (*before)->isSame(**now);
  return json{{"pin", settings.pin},
              {"interfaces", settings.attach.interfaces},
              {"max_names", (*now)->maxNames()},
              {"kept_maps", kept}};
}

Result<json> detach(const XdpSettings& settings) {
  const auto done = kernel::detachPinned(settings.pin);
  if (!done) return tl::unexpected(done.error());
  return json{{"pin", settings.pin}, {"detached", *done}};
}

const char* textOf(kernel::Mode mode) { return mode == kernel::Mode::kNative ? "native" : "generic"; }

// Interfaces of the Corefile first, then other pinned ones.
json interfacesOf(const XdpSettings& settings, std::vector<kernel::LinkStatus> links) {
  json all = json::array();
  for (const std::string& name : settings.attach.interfaces) {
    if (std::ranges::find(links, name, &kernel::LinkStatus::interface) == links.end())
      links.push_back({.interface = name});
  }
  for (const kernel::LinkStatus& link : links) {
    const bool wanted =
        std::ranges::find(settings.attach.interfaces, link.interface) != settings.attach.interfaces.end();
    json one{{"name", link.interface}, {"wanted", wanted}, {"attached", link.is_attached}};
    if (link.is_attached) {
      one["mode"] = textOf(link.mode);
      one["program"] = link.program;
    }
    all.push_back(std::move(one));
  }
  return all;
}

bool areAllAttached(const json& interfaces) {
  return std::ranges::all_of(interfaces, [](const json& one) { return !one["wanted"] || one["attached"]; });
}

// Null where there is none: another process may write there meanwhile.
json nameOf(const kernel::Zone& zone) {
  const std::vector<uint8_t> wire(zone.name, zone.name + std::min<size_t>(zone.name_size, kernel::kZoneName));
  if (wire.empty() || dns::uncompressedNameSize(wire) != wire.size()) return nullptr;
  return dns::Name::fromWire(wire).toString();
}

struct Held {
  std::array<size_t, kernel::kZones> names{};
  std::array<size_t, kernel::kZones> addresses{};
  size_t listeners = 0;
};

Result<Held> heldIn(const kernel::Maps& maps) {
  Held held;
  bool complete = maps.names().forEach([&held](const kernel::NameKey&, const kernel::Name& name) {
    if (name.zone < kernel::kZones) ++held.names[name.zone];
  });
  complete &= maps.pointers().forEach([&held](const kernel::NameKey&, const kernel::Pointer& pointer) {
    if (pointer.zone < kernel::kZones) ++held.addresses[pointer.zone];
  });
  complete &=
      maps.listeners().forEach([&held](const kernel::ListenerKey&, const kernel::Listener&) { ++held.listeners; });
  if (!complete) return fail("the kernel has not enough memory to read the maps");
  return held;
}

json zonesOf(const kernel::Maps& maps, const Held& held) {
  json all = json::array();
  const auto now = BootClock::now() - kernel::bootClockOffset();
  for (size_t i = 0; i < kernel::kZones; ++i) {
    const kernel::Zone& zone = maps.zone(i);
    if (zone.name_size == 0) continue;
    const BootClock::time_point until{std::chrono::nanoseconds(zone.fresh_until)};
    const double left = std::chrono::duration<double>(until - now).count();
    all.push_back({{"name", nameOf(zone)},
                   {"whole", zone.is_whole != 0},
                   {"believed_seconds", std::max(left, 0.0)},
                   {"names", held.names[i]},
                   {"addresses", held.addresses[i]}});
  }
  return all;
}

json answeredOf(const kernel::Maps& maps) {
  uint64_t sums[kernel::kTypes][kernel::kRcodes] = {};
  for (size_t i = 0; i < kernel::kMeters; ++i) {
    const kernel::Meter meter = maps.meter(i);
    for (const auto& family : meter.answered) {
      for (size_t type = 0; type < kernel::kTypes; ++type) {
        for (size_t rcode = 0; rcode < kernel::kRcodes; ++rcode) sums[type][rcode] += family[type][rcode];
      }
    }
  }
  json all = json::array();
  for (size_t type = 0; type < kernel::kTypes; ++type) {
    for (size_t rcode = 0; rcode < kernel::kRcodes; ++rcode) {
      if (sums[type][rcode] == 0) continue;
      all.push_back({{"type", resolve::QueryMeter::kTypes[type]},
                     {"rcode", KernelCounts::kRcodeNames[rcode]},
                     {"count", sums[type][rcode]}});
    }
  }
  return all;
}

json passedOf(const kernel::Maps& maps) {
  json all = json::array();
  const auto passed = maps.passed();
  for (size_t reason = 0; reason < passed.size(); ++reason) {
    if (passed[reason] != 0) all.push_back({{"reason", KernelCounts::kReasons[reason]}, {"count", passed[reason]}});
  }
  return all;
}

Result<json> status(const XdpSettings& settings) {
  auto links = kernel::readLinks(settings.pin);
  if (!links) return tl::unexpected(links.error());
  const auto opened = kernel::Maps::open(settings.pin);
  if (!opened && opened.error().code == ErrorCode::kNotFound && links->empty())
    return json{{"pin", settings.pin}, {"pinned", false}, {"attached", false}};
  if (!opened) return tl::unexpected(opened.error());
  const kernel::Maps& maps = **opened;
  const auto held = heldIn(maps);
  if (!held) return tl::unexpected(held.error());
  json interfaces = interfacesOf(settings, std::move(*links));
  const bool attached = areAllAttached(interfaces);
  const auto sum = [](const auto& counts) { return std::accumulate(counts.begin(), counts.end(), size_t{0}); };
  return json{{"pin", settings.pin},
              {"pinned", true},
              {"attached", attached},
              {"interfaces", std::move(interfaces)},
              {"max_names", maps.maxNames()},
              {"names", sum(held->names)},
              {"addresses", sum(held->addresses)},
              {"listeners", held->listeners},
              {"zones", zonesOf(maps, *held)},
              {"answered", answeredOf(maps)},
              {"passed", passedOf(maps)}};
}

Result<json> answer(const XdpSettings& settings, const resolve::LocalWork& asked) {
  if (asked.what == "attach") return attach(settings, asked.user);
  if (asked.what == "detach") return detach(settings);
  return status(settings);
}

}  // namespace

Result<std::string> workOnPinned(Blocks blocks, const resolve::LocalWork& asked) {
  const auto settings = settingsOf(blocks);
  if (!settings) return tl::unexpected(settings.error());
  const auto said = answer(*settings, asked);
  if (!said) return tl::unexpected(said.error());
  return said->dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace idetcd::directive
