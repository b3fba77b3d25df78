// The directive `nsid`: what a node says of itself.
#include <unistd.h>

#include "directive/nsid/identity.h"
#include "dns/response.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

bool isServerIdName(const dns::Query& query) {
  static const dns::Name kIdServer = dns::Name::parse("id.server.").value();
  static const dns::Name kHostnameBind = dns::Name::parse("hostname.bind.").value();
  const auto is = [&query](const dns::Name& name) { return std::ranges::equal(query.name(), name.wire()); };
  return is(kIdServer) || is(kHostnameBind);
}

class NsidDirective final : public resolve::Configured<NsidSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    constexpr size_t kMaxData = 255;
    std::string data;
    for (const std::string& word : cursor.remainingArgs()) data += data.empty() ? word : " " + word;
    if (data.size() > kMaxData) return cursor.error(fmt::format("nsid data of more than {} bytes", kMaxData));
    settings_.data = std::move(data);
    return cursor.finish();
  }
  // The identity of a block of no cluster. Of another one `idetcd` makes it.
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    identity_ = std::make_shared<const Identity>(
        Identity::Options{.nsid = settings_.data.empty() ? hostName() : settings_.data});
    return {};
  }
  // Before `idetcd`, which replaces it.
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    addIdentity(chain, identity_);
    return {};
  }

 private:
  std::shared_ptr<const Identity> identity_;
};

}  // namespace

resolve::QueryOutcome answerWithTexts(const dns::Query& query, size_t limit, uint16_t flags,
                                      std::span<const std::string> texts) {
  dns::ResponseBuilder response(query, limit);
  const bool asked = query.qtype == dns::code(dns::RrType::kTxt) || query.qtype == dns::code(dns::RrType::kAny);
  if (!asked) texts = {};
  for (const std::string& text : texts) {
    std::array<uint8_t, dns::kRecordHeadSize + 1 + kMaxChaosText> record;
    uint8_t* p = dns::putRecordHead(record.data(), dns::kQuestionPointer, dns::RrType::kTxt, 0, text.size() + 1,
                                    dns::RrClass::kCh);
    *p++ = static_cast<uint8_t>(text.size());
    response.addAnswer({record.data(), dns::putBytes(p, text)}, 1);
  }
  return resolve::QueryOutcome::answer(
      response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

const std::string* Identity::text() const {
  if (!options_.nsid.empty()) return &options_.nsid;
  const std::lock_guard lock(mutex_);
  if (!options_.own_name || disowned_) return nullptr;
  std::optional<std::string> name = options_.own_name();
  if (!name) return nullptr;
  if (name->ends_with('.')) name->pop_back();
  const auto it = std::find(said_.begin(), said_.end(), *name);
  return it != said_.end() ? &*it : &said_.emplace_back(std::move(*name));
}

void Identity::disown() const {
  const std::lock_guard lock(mutex_);
  disowned_ = true;
}

resolve::QueryOutcome Identity::answerChaos(const dns::Query& query, size_t limit, uint16_t flags) const {
  if (!isServerIdName(query)) return resolve::QueryOutcome::next();
  const std::string* said = text();
  if (said != nullptr && said->size() <= kMaxChaosText) return answerWithTexts(query, limit, flags, std::span(said, 1));
  return resolve::QueryOutcome::answer(dns::ResponseBuilder(query, limit).finish(dns::Rcode::kRefused, flags));
}

OwnAddress Identity::ownAddress(const IpAddress& address) const {
  if (!options_.own_name || !options_.own_addresses) return {};
  const std::vector<IpAddress> addresses = options_.own_addresses();
  OwnAddress own{.is_own = std::find(addresses.begin(), addresses.end(), address) != addresses.end(),
                 .name = {},
                 .ttl_seconds = options_.ttl_seconds};
  if (!own.is_own) return own;
  const std::optional<std::string> text = options_.own_name();
  if (!text) return own;
  if (const auto name = dns::Name::parse(*text)) own.name = *name;
  return own;
}

std::string hostName() {
  char name[256];
  return gethostname(name, sizeof(name)) == 0 ? std::string(name, strnlen(name, sizeof(name))) : std::string();
}

void addIdentity(resolve::Chain& chain, std::shared_ptr<const Identity> identity) {
  chain.parts.nsid = identity;
  addServerNames(chain, std::move(identity));
}

void addServerNames(resolve::Chain& chain, std::shared_ptr<const Identity> identity) {
  chain.addForOtherClasses(resolve::makeHandler(
      [identity = std::move(identity)](const dns::Query& query, const resolve::Request& request, uint16_t flags) {
        if (query.qclass != dns::code(dns::RrClass::kCh)) return resolve::QueryOutcome::next();
        return identity->answerChaos(query, request.response_limit, flags);
      }));
}

extern const resolve::DirectiveType kNsidDirective{
    .name = "nsid", .syntax = "nsid [DATA]", .make = resolve::makeDirective<NsidDirective>, .once = true};

}  // namespace idetcd::directive
