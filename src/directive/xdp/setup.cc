// The directive `xdp`: the cluster's names are answered in the kernel, where packets come in.
#include "directive/idetcd/settings.h"

#include <linux/capability.h>
#include <linux/magic.h>
#include <numeric>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/json.h"
#include "config/option_table.h"
#include "directive/xdp/kernel_answers.h"
#include "net/local_addresses.h"
#include "resolve/directive.h"
#include "sandbox/confinement.h"

namespace idetcd::directive {

namespace {

constexpr int64_t kMostNames = 16'000'000;

Result<void> readInterfaces(config::DirectiveCursor& cursor, XdpSettings& settings) {
  const auto arguments = cursor.args(1);
  if (!arguments) return tl::unexpected(arguments.error());
  auto& interfaces = settings.attach.interfaces;
  for (const std::string& argument : *arguments) {
    if (!net::mayNameInterface(argument))
      return cursor.error(fmt::format("not the name of an interface: '{}'", argument));
    if (std::ranges::find(interfaces, argument) == interfaces.end()) interfaces.push_back(argument);
  }
  return {};
}

config::Field<XdpSettings> modeOf(kernel::Mode mode) {
  return [mode](config::DirectiveCursor& cursor, XdpSettings& settings) -> Result<void> {
    if (settings.attach.mode != kernel::Mode::kAny && settings.attach.mode != mode)
      return cursor.error("native and generic exclude each other");
    settings.attach.mode = mode;
    return {};
  };
}

Result<void> readPin(config::DirectiveCursor& cursor, XdpSettings& settings) {
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  if (!argument->starts_with('/')) return cursor.error(fmt::format("not an absolute path: '{}'", *argument));
  settings.pin = *argument;
  while (settings.pin.size() > 1 && settings.pin.ends_with('/')) settings.pin.pop_back();
  return {};
}

const config::Options<XdpSettings>& options() {
  using namespace config;
  using kernel::AttachOptions;
  static const Options<XdpSettings> kOptions{
      readInterfaces,
      {{"native", "native", modeOf(kernel::Mode::kNative)},
       {"generic", "generic", modeOf(kernel::Mode::kGeneric)},
       {"required", "required", flag(&XdpSettings::required)},
       {"max_names", "max_names N",
        within(&XdpSettings::attach, number(&AttachOptions::max_names, kernel::kMinNames, kMostNames,
                                            "max_names must be a number from {least} to {most}: '{word}'"))},
       {"pin", "pin DIRECTORY, like /sys/fs/bpf/idetcd", readPin}}};
  return kOptions;
}

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
  complete &= maps.listeners().forEach([&held](const kernel::ListenerKey& key, const kernel::Listener&) {
    if (key.port != 0) ++held.listeners;  // without those of own addresses
  });
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

// `idetcd xdp attach|detach|status`: what a Corefile's `xdp` has pinned is made, taken away and looked at, in a process of
// its own that ends with it, so that the server needs no right for it. `asked.what`: "attach", "detach" or "status". The
// answer is as src/cli/xdp_command.cc reads it. An error: the Corefile has no `xdp`, or one without `pin`, or what the kernel
// says. Blocks. One thread.
Result<std::string> workOnPinned(Blocks blocks, const resolve::LocalWork& asked) {
  const auto settings = settingsOf(blocks);
  if (!settings) return tl::unexpected(settings.error());
  const auto said = answer(*settings, asked);
  if (!said) return tl::unexpected(said.error());
  return said->dump(-1, ' ', false, json::error_handler_t::replace);
}

// --- idetcd doctor ---

using resolve::Findings;
using resolve::Severity;

void judgeKernel(Severity bad, Findings& findings) {
  constexpr std::pair kFirst{5, 9};  // with links (bpf_link) to XDP
  utsname kernel{};
  std::pair<int, int> version;
  if (::uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &version.first, &version.second) != 2) return;
  if (version < kFirst)
    findings.push_back({bad, fmt::format("Linux {} is older than 5.9", kernel.release), "a newer kernel, or no `xdp`"});
}

void judgeInterface(const std::string& name, const XdpSettings& settings, Severity bad, Findings& findings) {
  const auto found = kernel::programOn(name);
  if (!found) return findings.push_back({bad, found.error().message, {}});
  if (found->index == 0) {
    return findings.push_back({bad, fmt::format("there is no interface {}", name), "bring it up, or correct `xdp`"});
  }
  findings.push_back({Severity::kOk, fmt::format("{} {}", name, found->mode ? "has an XDP program" : "has no XDP program yet"), {}});
  if (settings.attach.mode == kernel::Mode::kNative && kernel::isVeth(name)) {
    findings.push_back({Severity::kWarning,
                        fmt::format("{} is a veth: in native mode answers are lost unless the other end has an XDP program", name),
                        "`generic`"});
  }
}

void judgePin(const std::string& pin, Severity bad, Findings& findings) {
  struct statfs found {};
  const std::string parent = pin.substr(0, std::max<size_t>(pin.rfind('/'), 1));
  if (::statfs(pin.c_str(), &found) != 0 && ::statfs(parent.c_str(), &found) != 0) {
    return findings.push_back({bad, fmt::format("{}: {}", pin, std::strerror(errno)), "mount -t bpf bpf /sys/fs/bpf"});
  }
  if (found.f_type != BPF_FS_MAGIC) {
    findings.push_back({bad, fmt::format("{} is on no bpf file system", pin),
                        "mount -t bpf bpf /sys/fs/bpf, and `pin /sys/fs/bpf/idetcd`"});
  }
}

Findings look(const XdpSettings& settings) {
  const Severity bad = settings.required ? Severity::kError : Severity::kWarning;
  if (!kernel::hasProgram()) {
    return {{bad, "this binary was built without the program for the kernel", "build it with clang, bpftool and libbpf"}};
  }
  Findings findings;
  judgeKernel(bad, findings);
  for (const std::string& interface : settings.attach.interfaces) judgeInterface(interface, settings, bad, findings);
  if (!settings.pin.empty()) judgePin(settings.pin, bad, findings);
  constexpr std::array kRights{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON};
  if (!std::ranges::all_of(kRights, sandbox::hasCapability)) {
    findings.push_back({Severity::kNote, "this user may attach nothing: it lacks CAP_BPF, CAP_NET_ADMIN or CAP_PERFMON",
                        "idetcd-xdp.service attaches it as root, with `pin`"});
  }
  return findings;
}

std::vector<resolve::Check> checks(Blocks blocks) {
  for (const resolve::Block& block : blocks) {  // all of a Corefile say the same
    if (const auto* settings = block.settings<XdpSettings>(); settings != nullptr)
      return {{"xdp", [copy = *settings] { return look(copy); }}};
  }
  return {};
}

// False only if it is certain that nothing is attached.
bool mayAnswer(const std::string& pin) {
  const auto links = kernel::readLinks(pin);
  return !links || std::ranges::any_of(*links, &kernel::LinkStatus::is_attached);
}

// Brings what is pinned to this binary's version where the process may do so, and uses it as it is where it may not, or
// where that fails: what answers has to be fed in any case.
Result<kernel::Attachment> adopt(const XdpSettings& settings) {
  const auto attached = kernel::attachPinned(settings.attach, settings.pin);
  auto maps = kernel::Maps::open(settings.pin);
  const bool lacks_rights = !attached && attached.error().code == ErrorCode::kPermissionDenied;
  if (!maps) {
    const bool were_there = maps.error().code != ErrorCode::kNotFound;
    return tl::unexpected(attached || (lacks_rights && were_there) ? maps.error() : attached.error());
  }
  const bool failed = !attached && !lacks_rights && kernel::hasProgram();
  if (failed && !mayAnswer(settings.pin)) return tl::unexpected(attached.error());
  return kernel::Attachment{.maps = std::move(*maps),
                            .failure = failed ? attached.error().message : std::string(),
                            .program = {},
                            .links = {}};
}

class XdpDirective final : public resolve::Configured<XdpSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  void checkTogether(std::span<Directive* const> all) override {
    const auto& first = static_cast<const XdpDirective&>(*all.front());
    is_first_ = &first == this;
    differs_ = !first.settings().isSameAttachment(settings_) || first.settings().required != settings_.required;
  }
  Result<void> check(const resolve::Block& block) const override {
    if (block.settings<ClusterSettings>() == nullptr) return fail("plugin/xdp: the server block has no `idetcd`");
    if (differs_) return fail("plugin/xdp: every `xdp` of a Corefile has to say the same");
    return {};
  }
  Result<void> beforeConfinement() override {
    if (!is_first_) return {};
    taken_ = settings_.pin.empty() ? kernel::attach(settings_.attach) : adopt(settings_);
    for (const std::string& interface : settings_.attach.interfaces) {
      if (settings_.attach.mode == kernel::Mode::kNative && kernel::isVeth(interface)) losing_.push_back(interface);
    }
    if (!*taken_ && settings_.required) return fail(fmt::format("plugin/xdp: {}", taken_->error().message));
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    for (const std::string& interface : std::exchange(losing_, {})) {
      process.log.named("plugin/xdp")
          .warning("{} is a veth: in native mode answers are lost unless the other end has an XDP program", interface);
    }
    return process.state<KernelAnswers>().want(settings_, std::exchange(taken_, std::nullopt));
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.in_kernel = true;
    return {};
  }

 private:
  bool is_first_ = true;  // of the Corefile's
  bool differs_ = false;  // from the first
  std::optional<Result<kernel::Attachment>> taken_;
  std::vector<std::string> losing_;  // interfaces that lose answers as they are
};

}  // namespace

extern const resolve::DirectiveType kXdpDirective{
    .name = "xdp",
    .syntax = "xdp INTERFACE... [{ native|generic, required, max_names N, pin DIRECTORY }]",
    .make = resolve::makeDirective<XdpDirective>,
    .once = true,
    .work = workOnPinned,
    .defaults = [] { return options().defaults(); },
    .checks = checks};

}  // namespace idetcd::directive
