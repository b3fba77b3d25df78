#include "peers/membership.h"

#include "base/json.h"
#include "base/text.h"
#include "founding/message.h"

namespace idetcd::peers {
namespace {

using nlohmann::json;

std::optional<SocketAddress> addressOf(const json& text) {
  if (!text.is_string()) return std::nullopt;
  return SocketAddress::parse(text.get_ref<const std::string&>());
}

template <typename T>
T valueOf(const json& object, const char* name, T otherwise) {
  const auto found = object.find(name);
  if (found == object.end()) return otherwise;
  const bool fits = std::is_same_v<T, bool> ? found->is_boolean()
                    : std::is_integral_v<T> ? found->is_number_integer()
                                            : found->is_string();
  return fits ? found->get<T>() : otherwise;
}

std::optional<Voter> voterOf(const json& object) {
  if (!object.is_object() || !object.contains("address")) return std::nullopt;
  const auto address = addressOf(object["address"]);
  const auto id = parseNumber<uint64_t>(valueOf<std::string>(object, "member", ""), 16).value_or(0);
  Voter voter{.uuid = valueOf<std::string>(object, "uuid", ""),
              .address = {},
              .member = id,
              .learner = valueOf(object, "learner", false)};
  if (!address || id == 0 || voter.uuid.empty()) return std::nullopt;
  voter.address = *address;
  return voter;
}

// --- nextStep ---

struct Sizes {
  size_t voters = 0;
  size_t living = 0;
  bool isQuorum() const { return living >= voters / 2 + 1; }
};

Sizes sizesOf(const View& view) {
  Sizes sizes;
  for (const View::Member& member : view.members) {
    if (member.voter.learner) continue;
    ++sizes.voters;
    sizes.living += member.answers ? 1 : 0;
  }
  return sizes;
}

const View::Member* memberOf(const View& view, const std::string& uuid) {
  const auto found = std::ranges::find(view.members, uuid, [](const View::Member& one) { return one.voter.uuid; });
  return uuid.empty() || found == view.members.end() ? nullptr : &*found;
}

const Machine* machineOf(const View& view, const std::string& uuid) {
  const auto found = std::ranges::find(view.machines, uuid, &Machine::uuid);
  return found == view.machines.end() ? nullptr : &*found;
}

Published publish(const View& view, std::optional<Change> change) {
  Published value{.cluster = view.published.cluster, .change = std::move(change)};
  for (const View::Member& member : view.members) value.voters.push_back(member.voter);
  return value;
}

Step begin(const View& view, std::string add, std::string remove, std::string why) {
  return {step::Publish{publish(view, Change{.add = std::move(add), .remove = std::move(remove)})}, std::move(why)};
}

bool staysQuorumWithout(const View& view, const View::Member& member) {
  Sizes sizes = sizesOf(view);
  if (!member.voter.learner) {
    --sizes.voters;
    sizes.living -= member.answers ? 1 : 0;
  }
  return sizes.voters > 0 && sizes.isQuorum();
}

Step goOn(const View& view, const Change& change) {
  const View::Member* const added = memberOf(view, change.add);
  const View::Member* const removed = memberOf(view, change.remove);
  const bool is_back = !change.add.empty() && removed != nullptr && removed->answers;
  const Machine* const machine = machineOf(view, change.add);
  const bool gives_up = is_back || machine == nullptr || view.change_age >= kLearnerPatience ||
                        (removed == nullptr && !change.remove.empty());
  const Step end{step::Publish{publish(view, std::nullopt)}, ""};
  if (!change.add.empty() && added == nullptr) {
    if (gives_up || !machine->stands_by) return end;
    return {step::Add{*machine}, fmt::format("machine {} is to vote", change.add)};
  }
  if (added != nullptr && added->voter.learner) {
    if (publish(view, change) != view.published)
      return {step::Publish{publish(view, change)}, "the new machine is told"};
    if (added->answers && !is_back)
      return {step::Promote{added->voter}, fmt::format("machine {} is to vote: it catches up", change.add)};
    if (gives_up)
      return {step::Remove{added->voter}, is_back ? fmt::format("machine {} is back", change.remove)
                                                  : fmt::format("machine {} did not come", change.add)};
    return {step::Wait{}, fmt::format("machine {} is to vote: its etcd starts", change.add)};
  }
  // One that is back, of an odd number: without it one failure less would be borne.
  const bool is_wanted = is_back && sizesOf(view).voters % 2 == 1;
  if (removed == nullptr || is_wanted) return end;
  if (!staysQuorumWithout(view, *removed))
    return {step::Wait{}, fmt::format("machine {} is to vote no more, once enough others answer", change.remove)};
  return {step::Remove{removed->voter}, fmt::format("machine {} votes no more", change.remove)};
}

// That may be given an etcd: the oldest first. Machines without a disk only if no machine has one.
std::vector<const Machine*> candidates(const View& view) {
  const bool some_are_durable = std::ranges::any_of(view.machines, &Machine::durable);
  std::vector<const Machine*> found;
  for (const Machine& machine : view.machines) {
    if (machine.stands_by && machine.durable == some_are_durable && memberOf(view, machine.uuid) == nullptr &&
        !view.avoided.contains(machine.uuid) && !view.gone.contains(machine.address))
      found.push_back(&machine);
  }
  std::ranges::sort(found, {}, [](const Machine* machine) { return std::tie(machine->start, machine->uuid); });
  return found;
}

// Its machine says that it has no etcd, or another machine has its address: it does not come back.
bool isLost(const View& view, const View::Member& member) {
  return std::ranges::any_of(view.machines, [&member](const Machine& machine) {
    return machine.stands_by && (machine.uuid == member.voter.uuid || machine.address == member.voter.address);
  });
}

const View::Member* longestSilent(const View& view) {
  const View::Member* found = nullptr;
  for (const View::Member& member : view.members) {
    if (member.voter.learner || member.answers || member.silent < kSilence) continue;
    if (found == nullptr || member.silent > found->silent) found = &member;
  }
  return found;
}

// Of more than are needed, if all answer: the youngest, but not the leader.
const View::Member* mostDispensable(const View& view) {
  const auto age = [&view](const View::Member& member) {
    const Machine* const machine = machineOf(view, member.voter.uuid);
    return machine == nullptr ? std::numeric_limits<int64_t>::max() : machine->start;
  };
  const View::Member* found = nullptr;
  for (const View::Member& member : view.members) {
    if (member.voter.learner || member.voter.member == view.self) continue;
    if (found == nullptr || age(member) > age(*found)) found = &member;
  }
  return found;
}

}  // namespace

std::string encode(const Machine& machine) {
  return toText(json{{"address", machine.address.toString()},
                     {"start", machine.start},
                     {"durable", machine.durable},
                     {"stands_by", machine.stands_by}});
}

std::string encode(const Published& published) {
  json voters = json::array();
  for (const Voter& voter : published.voters) {
    voters.push_back({{"uuid", voter.uuid},
                      {"address", voter.address.toString()},
                      {"member", fmt::format("{:x}", voter.member)},
                      {"learner", voter.learner}});
  }
  json change;
  if (published.change) change = {{"add", published.change->add}, {"remove", published.change->remove}};
  return toText(json{{"cluster", published.cluster}, {"voters", voters}, {"change", change}});
}

std::optional<Machine> decodeMachine(std::string_view uuid, std::string_view text) {
  const json object = parseJson(text);
  if (!object.is_object() || uuid.empty() || !object.contains("address")) return std::nullopt;
  const auto address = addressOf(object["address"]);
  if (!address) return std::nullopt;
  return Machine{.uuid = std::string(uuid),
                 .address = *address,
                 .start = valueOf<int64_t>(object, "start", 0),
                 .durable = valueOf(object, "durable", false),
                 .stands_by = valueOf(object, "stands_by", false)};
}

std::optional<Published> decodePublished(std::string_view text) {
  const json object = parseJson(text);
  if (!object.is_object() || !object.contains("voters") || !object["voters"].is_array()) return std::nullopt;
  Published published{.cluster = valueOf<std::string>(object, "cluster", "")};
  for (const json& one : object["voters"]) {
    auto voter = voterOf(one);
    if (!voter) return std::nullopt;
    published.voters.push_back(std::move(*voter));
  }
  if (object.contains("change") && object["change"].is_object()) {
    const json& change = object["change"];
    published.change =
        Change{.add = valueOf<std::string>(change, "add", ""), .remove = valueOf<std::string>(change, "remove", "")};
  }
  return published;
}

std::vector<Machine> machinesOf(const std::vector<store::KeyValue>& keys) {
  std::map<SocketAddress, std::pair<int64_t, Machine>> last;
  for (const store::KeyValue& kv : keys) {
    if (!kv.key.starts_with(kMachinesPrefix)) continue;
    auto machine = decodeMachine(std::string_view(kv.key).substr(kMachinesPrefix.size()), kv.value);
    if (!machine) continue;
    auto& [revision, known] = last[machine->address];
    if (kv.mod_revision > revision) std::tie(revision, known) = std::pair(kv.mod_revision, std::move(*machine));
  }
  std::vector<Machine> machines;
  machines.reserve(last.size());
  for (auto& [address, one] : last) machines.push_back(std::move(one.second));
  return machines;
}

size_t votersWanted(const View& view) {
  const size_t voters = sizesOf(view).voters;
  const size_t standbys = candidates(view).size();
  assert(view.gone.size() <= view.machines.size());
  size_t wanted = founding::votersFor(view.machines.size() - view.gone.size());
  while (wanted > 1 && wanted > voters + standbys) wanted -= 2;
  return wanted;
}

Step nextStep(const View& view) {
  const Sizes sizes = sizesOf(view);
  if (!sizes.isQuorum())
    return {step::Wait{},
            fmt::format("{} of {} voters answer: no change before a majority does", sizes.living, sizes.voters)};
  if (view.published.change) return goOn(view, *view.published.change);
  for (const View::Member& member : view.members) {
    if (member.voter.learner) return {step::Remove{member.voter}, "a learner of no change"};
  }
  if (publish(view, std::nullopt) != view.published)
    return {step::Publish{publish(view, std::nullopt)}, "the voters are published"};

  const auto standbys = candidates(view);
  const size_t target = votersWanted(view);
  const bool shrinks = sizes.voters > target && view.too_many_for >= kShrinkAfter;
  const bool is_even = sizes.voters % 2 == 0;
  const auto grow = [&] {
    return begin(view, standbys[0]->uuid, "",
                 fmt::format("{} machines are to vote: machine {} begins", target, standbys[0]->uuid));
  };
  if (const View::Member* const silent = longestSilent(view)) {
    // It would have to go before its own machine, or another one at its address, can come.
    if (isLost(view, *silent) && staysQuorumWithout(view, *silent))
      return begin(view, "", silent->voter.uuid, fmt::format("machine {} has lost its data", silent->voter.uuid));
    // An even number bears no failure more than one less.
    if ((shrinks || (is_even && sizes.voters > target)) && staysQuorumWithout(view, *silent))
      return begin(view, "", silent->voter.uuid,
                   fmt::format("machine {} is silent, and is not needed", silent->voter.uuid));
    if (standbys.empty())
      return {step::Wait{},
              fmt::format("machine {} is silent, and none stands by to vote in its place", silent->voter.uuid)};
    if (is_even && sizes.voters < target) return grow();
    return begin(
        view, standbys[0]->uuid, silent->voter.uuid,
        fmt::format("machine {} is silent: machine {} is to vote in its place", silent->voter.uuid, standbys[0]->uuid));
  }
  if (sizes.voters < target) return grow();
  const View::Member* const dispensable = shrinks ? mostDispensable(view) : nullptr;
  if (dispensable != nullptr && staysQuorumWithout(view, *dispensable))
    return begin(view, "", dispensable->voter.uuid, fmt::format("{} machines are to vote, no more", target));
  return {step::Wait{}, ""};
}

bool beginsWithAnother(const View& view, const Step& step) {
  const auto* const publication = std::get_if<step::Publish>(&step.what);
  return publication != nullptr && !view.published.change && publication->value.change &&
         !publication->value.change->add.empty();
}

}  // namespace idetcd::peers
