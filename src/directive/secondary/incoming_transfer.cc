#include "directive/secondary/incoming_transfer.h"

#include <ctime>

#include "dns/message_reader.h"
#include "dns/record.h"
#include "zones/zone_copy.h"

namespace idetcd::directive {

using dns::RrType;

namespace {

// Of a SOA, of which a primary reads the serial only (RFC 1995 §3): both names are the root.
constexpr size_t kLeastSoa = 22;

// Behind a question for the zone: the SOA of the copy, in the authority section. Returns the size with it.
size_t addCopysSoa(std::span<uint8_t> message, size_t size, uint32_t serial) {
  uint8_t* const soa = dns::putRecordHead(&message[size], dns::kQuestionPointer, RrType::kSoa, 0, kLeastSoa);
  std::fill_n(soa, kLeastSoa, uint8_t{0});
  dns::store32(soa + 2, serial);
  dns::store16(&message[8], 1);
  return static_cast<size_t>(soa + kLeastSoa - message.data());
}

uint64_t secondsNow() { return static_cast<uint64_t>(std::time(nullptr)); }

}  // namespace

IncomingTransfer::IncomingTransfer(net::EventLoop& loop, SecureRandom& random, std::shared_ptr<Executor> executor,
                                   Question question, Done done)
    : loop_(loop),
      random_(random),
      executor_(std::move(executor)),
      question_(std::move(question)),
      done_(std::move(done)),
      connector_(loop),
      reader_(question_.zone, question_.serial),
      answer_(question_.type == RrType::kAxfr ? Answer::kZone : Answer::kNone),
      timer_(loop_, [this] { onTimer(); }) {}

// What was not wanted is freed on a thread: there may be millions of messages.
IncomingTransfer::~IncomingTransfer() {
  auto messages = reader_.take();
  if (!messages.empty()) executor_->submit([unwanted = std::move(messages)]() mutable { unwanted.clear(); });
}

void IncomingTransfer::start() {
  auto connection = connector_.connect(question_.primary);
  if (!connection) return finish(tl::unexpected(connection.error()));
  connection_ = std::move(*connection);
  timer_.start(kSilence, kSilence);
  connection_->start(*this);
}

void IncomingTransfer::onTimer() {
  if (!std::exchange(heard_, false))
    return finish(fail(hasSoaAlone() ? "it sends its SOA alone" : "it says nothing"));
  if (BootClock::now() - begin_ > kLongest) finish(fail("it takes longer than an hour"));
}

void IncomingTransfer::onConnected() { ask(); }

void IncomingTransfer::ask() {
  id_ = random_.next16();
  std::vector<uint8_t> query(dns::kLengthPrefix + dns::kMaxQuestionSize + 2 * dns::kMaxNameLength + 128);
  const std::span<uint8_t> message = std::span(query).subspan(dns::kLengthPrefix);
  size_t size =
      dns::writeQuestion(message.data(), 0, question_.zone.wire(), dns::code(question_.type), dns::code(dns::RrClass::kIn));
  dns::store16(message.data(), id_);
  if (question_.type == RrType::kIxfr) size = addCopysSoa(message, size, *question_.serial);
  if (question_.key != nullptr) {
    tsig::Signer signer(*question_.key);
    size = signer.sign(message, size, secondsNow());
    verifier_.emplace(*question_.key, signer.mac());
  }
  dns::store16(query.data(), static_cast<uint16_t>(size));
  query.resize(dns::kLengthPrefix + size);
  connection_->write(std::move(query));
}

void IncomingTransfer::onData(std::span<const uint8_t> bytes) {
  heard_ = true;
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  size_t used = 0;
  while (done_ && input_.size() - used >= dns::kLengthPrefix) {
    const size_t size = dns::load16(&input_[used]);
    if (input_.size() - used - dns::kLengthPrefix < size) break;
    const std::span<const uint8_t> message = std::span(input_).subspan(used + dns::kLengthPrefix, size);
    used += dns::kLengthPrefix + size;
    onMessage(message);
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(used));
}

void IncomingTransfer::onMessage(std::span<const uint8_t> message) {
  if (question_.type == RrType::kSoa) answer_ = Answer::kSoa;
  if (const auto good = check(message); !good) return finish(tl::unexpected(good.error()));
  is_first_ = false;
  heard_ = true;
  if (question_.type == RrType::kSoa) return onSerial(message);
  onZone(message);
}

Result<void> IncomingTransfer::check(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize) return fail("a message cannot be read");
  const dns::HeaderView header(message.data());
  if (!header.isResponse() || header.id() != id_ || header.opcode() != dns::Opcode::kQuery)
    return fail("a message is no answer to what was asked");
  if (header.rcode() != dns::Rcode::kNoError) {
    if (answer_ == Answer::kNone) answer_ = Answer::kNoChanges;
    return fail("it answers " + dns::kRcodeNames.toString(dns::code(header.rcode())));
  }
  // Only those behind the first one may be without it (RFC 5936 §2.2.1).
  const bool may_lack_question = !is_first_ && header.questions() == 0;
  if (!may_lack_question && !hasQuestion(message)) return fail("a message answers another question");
  if (question_.type == RrType::kSoa && (header.flags() & dns::kFlagAa) == 0) return fail("its answer is not authoritative");
  return verifier_ ? verifier_->verify(message, tsig::findRecord(message), secondsNow()) : Result<void>();
}

bool IncomingTransfer::hasQuestion(std::span<const uint8_t> message) const {
  if (dns::HeaderView(message.data()).questions() != 1) return false;
  dns::ExpandedName name;
  const size_t end = dns::expandName(message, dns::kHeaderSize, name);
  return end != 0 && message.size() - end >= 4 && dns::sameName(name.span(), question_.zone.wire()) &&
         dns::isType(dns::load16(&message[end]), question_.type) &&
         dns::load16(&message[end + 2]) == dns::code(dns::RrClass::kIn);
}

void IncomingTransfer::onZone(std::span<const uint8_t> message) {
  const auto is_last = reader_.add(message);
  if (reader_.course().isWhole()) answer_ = Answer::kZone;
  if (reader_.course().isIncremental()) answer_ = Answer::kChanges;
  if (!is_last && answer_ != Answer::kZone) answer_ = Answer::kNoChanges;
  if (!is_last) return finish(tl::unexpected(is_last.error()));
  if (hasSoaAlone()) {
    answer_ = Answer::kNoChanges;
    heard_ = false;
    timer_.start(kAlone, kSilence);
  }
  if (!*is_last) return;
  if (verifier_ && !verifier_->isSigned()) return finish(fail("the last message is not signed"));
  finish(reader_.take());
}

bool IncomingTransfer::hasSoaAlone() const {
  const auto& course = reader_.course();
  return question_.type == RrType::kIxfr && !is_first_ && !course.isWhole() && !course.isIncremental();
}

void IncomingTransfer::onSerial(std::span<const uint8_t> message) {
  const auto serial = zones::readSerial(message, question_.zone);
  if (!serial) return finish(fail("it answers without the zone's SOA"));
  serial_ = *serial;
  finish(zones::TransferReader::Messages());
}

// Later, since whoever hears of it may destroy this.
void IncomingTransfer::finish(Result<zones::TransferReader::Messages> result) {
  if (!done_) return;
  timer_.stop();
  loop_.post([done = std::exchange(done_, nullptr), result = std::move(result)]() mutable { done(std::move(result)); });
}

}  // namespace idetcd::directive
