#include "dns/query.h"

#include <algorithm>

namespace idetcd::dns {

namespace {

// Offset behind the uncompressed name at `pos`, or 0. In a question every compression pointer is invalid: what lies
// before it is the header, and a pointer must point backwards (RFC 1035 §4.1.4).
size_t questionNameEnd(const uint8_t* message, size_t size, size_t pos) {
  const size_t limit = std::min(size, pos + kMaxNameLength);  // the root label must lie before it
  while (pos < limit) {
    const size_t length = message[pos];
    if (length - 1 >= kMaxLabelLength) return length == 0 ? pos + 1 : 0;  // (a wrapped 0 is caught, too)
    pos += length + 1;
  }
  return 0;
}

// Offset behind the name at `pos` of a record, or 0. A pointer is checked, not followed: it must lead before this name
// (into the name itself it would be a loop) and behind the header.
size_t recordNameEnd(const uint8_t* message, size_t size, size_t pos) {
  const size_t start = pos;
  while (pos < size) {
    const uint8_t length = message[pos];
    if (length == 0) return pos + 1;
    if (length >= 0xc0) {
      if (size - pos < 2) return 0;
      const size_t target = load16(message + pos) & 0x3fffu;
      return target >= kHeaderSize && target < start ? pos + 2 : 0;
    }
    if (length > kMaxLabelLength) return 0;
    pos += length + 1u;
    if (pos - start >= kMaxNameLength) return 0;
  }
  return 0;
}

struct Options {
  bool valid = true;
  bool cookie = false;
  bool nsid = false;
};

// RFC 6891 §6.1.2; the length of a COOKIE is checked as RFC 7873 §5.2.2 asks, and of two only the first is looked at
// (RFC 7873 §5.2).
Options checkOptions(const uint8_t* rdata, size_t size) {
  Options options;
  size_t pos = 0;
  while (pos < size) {
    if (size - pos < 4) return {.valid = false};
    const uint16_t option = load16(rdata + pos);
    const uint16_t length = load16(rdata + pos + 2);
    pos += 4;
    if (size - pos < length) return {.valid = false};
    if (option == code(EdnsOption::kCookie) && !options.cookie) {
      if (length != 8 && (length < 16 || length > 40)) return {.valid = false};
      options.cookie = true;
    }
    options.nsid |= option == code(EdnsOption::kNsid);
    pos += length;
  }
  return options;
}

ParseOutcome refuse(Query& query, Rcode rcode) {
  query.error = rcode;
  return ParseOutcome::kError;
}

// (Forced: it has a second, rare caller, for which g++ would make a call of it.)
[[gnu::always_inline]] inline bool readQuestion(Query& query, HashSeed seed) {
  const uint8_t* message = query.message;
  const size_t end = questionNameEnd(message, query.size, kHeaderSize);
  if (end == 0 || query.size - end < 4) return false;
  const size_t name_size = end - kHeaderSize;
  foldCase(message + kHeaderSize, name_size, query.qname);
  query.qname_size = static_cast<uint16_t>(name_size);
  query.hash = hashBytes(query.qname, name_size, seed);
  query.qtype = load16(message + end);
  query.qclass = load16(message + end + 2);
  query.question_end = static_cast<uint16_t>(end + 4);
  return true;
}

// What is behind the question: most queries have nothing there, or OPT.
class RecordReader {
 public:
  explicit RecordReader(Query& query)
      : query_(query), message_(query.message), size_(query.size), pos_(query.question_end) {}

  // False: FORMERR. What else is wrong goes to query.error.
  bool read() {
    const size_t before_additional = size_t{load16(message_ + 6)} + load16(message_ + 8);
    const size_t total = before_additional + load16(message_ + 10);
    for (size_t i = 0; i < total; ++i) {
      if (!readRecord(i >= before_additional, i + 1 == total)) return false;
    }
    return true;
  }
  bool hasCookie() const { return cookie_; }

 private:
  bool readRecord(bool additional, bool last) {
    const size_t owner = pos_;
    const size_t fixed = recordNameEnd(message_, size_, pos_);
    if (fixed == 0 || size_ - fixed < 10) return false;
    const uint16_t type = load16(message_ + fixed);
    const size_t rdata_size = load16(message_ + fixed + 8);
    const size_t rdata = fixed + 10;
    if (size_ - rdata < rdata_size) return false;
    pos_ = rdata + rdata_size;
    if (type == code(RrType::kOpt)) return additional && readOpt(owner, fixed, rdata, rdata_size);
    if (type == code(RrType::kTsig)) return additional && last && noteTsig(owner);
    return true;
  }

  bool readOpt(size_t owner, size_t fixed, size_t rdata, size_t rdata_size) {
    if (query_.has_edns || message_[owner] != 0) return false;  // RFC 6891 §6.1.1
    query_.has_edns = true;
    const uint16_t payload = load16(message_ + fixed + 2);
    query_.udp_payload = payload < kMinUdpPayload ? static_cast<uint16_t>(kMinUdpPayload) : payload;
    query_.dnssec_ok = (message_[fixed + 6] & 0x80) != 0;
    if (message_[fixed + 5] != 0) {  // RFC 6891 §6.1.3: nothing else of an unknown version may be looked at
      query_.error = Rcode::kBadVers;
      return true;
    }
    if (rdata_size == 0) return true;
    const Options options = checkOptions(message_ + rdata, rdata_size);
    cookie_ = options.cookie;
    query_.wants_nsid = options.nsid;
    return options.valid;
  }

  // No key is configured, so every TSIG names an unknown one (RFC 8945 §5.2.1). Its names must be uncompressed to be
  // echoed.
  bool noteTsig(size_t owner) {
    if (query_.error == Rcode::kNoError) query_.error = Rcode::kNotAuth;
    query_.tsig_offset = static_cast<uint16_t>(owner);
    return true;
  }

  Query& query_;
  const uint8_t* message_;
  size_t size_;
  size_t pos_;
  bool cookie_ = false;
};

// Question and OPT are answered where they can be read (RFC 6891 §6.1.1); the sections of another opcode need not mean
// what a query's do.
[[gnu::noinline]] ParseOutcome parseOtherOpcode(Query& query, HashSeed seed, uint16_t questions) {
  if (questions == 0 || (questions == 1 && readQuestion(query, seed))) RecordReader(query).read();
  return refuse(query, Rcode::kNotImp);
}

[[gnu::noinline]] ParseOutcome parseWithoutQuestion(Query& query) {
  RecordReader reader(query);
  if (!reader.read()) return refuse(query, Rcode::kFormErr);
  if (query.error != Rcode::kNoError) return ParseOutcome::kError;
  // Only a COOKIE asks for anything (RFC 7873 §5.4).
  return refuse(query, reader.hasCookie() ? Rcode::kNoError : Rcode::kFormErr);
}

[[gnu::noinline]] ParseOutcome checkMetaType(Query& query) {
  switch (static_cast<RrType>(query.qtype)) {
    case RrType::kOpt:
    case RrType::kTsig:
      return refuse(query, Rcode::kFormErr);
    case RrType::kTkey:
    case RrType::kMailA:
    case RrType::kMailB:
      return refuse(query, Rcode::kNotImp);
    case RrType::kAxfr:
    case RrType::kIxfr:
      return refuse(query, Rcode::kRefused);
    default:
      return query.qtype == 0 ? refuse(query, Rcode::kFormErr) : ParseOutcome::kQuery;
  }
}

ParseOutcome checkType(Query& query) {
  const bool ordinary = query.qtype - 1u < code(RrType::kOpt) - 1u;
  return ordinary ? ParseOutcome::kQuery : checkMetaType(query);
}

// REQUIRES: the question was read.
[[gnu::noinline]] ParseOutcome parseRecords(Query& query) {
  if (!RecordReader(query).read()) return refuse(query, Rcode::kFormErr);
  return query.error != Rcode::kNoError ? ParseOutcome::kError : checkType(query);
}

}  // namespace

// (flatten: the hash, too, is inlined. Nothing but the rare cases above is called.)
[[gnu::flatten]] ParseOutcome parseQuery(uint8_t* message, size_t size, HashSeed seed, Query& query) {
  if (size < kHeaderSize) return ParseOutcome::kDrop;
  query.message = message;
  query.size = static_cast<uint16_t>(size);
  query.question_end = kHeaderSize;
  query.flags = load16(message + 2);
  query.qtype = query.qclass = query.qname_size = 0;
  query.error = Rcode::kNoError;
  query.has_edns = query.dnssec_ok = query.wants_nsid = false;
  query.nsid = nullptr;
  query.udp_payload = kMinUdpPayload;
  query.tsig_offset = 0;
  query.hash = 0;
  if ((query.flags & kFlagQr) != 0) return ParseOutcome::kDrop;

  const uint64_t counts = load64(message + 4);
  const auto questions = static_cast<uint16_t>(counts >> 48);
  if (query.opcode() != Opcode::kQuery) return parseOtherOpcode(query, seed, questions);
  if (questions > 1) return refuse(query, Rcode::kFormErr);  // RFC 9619
  if (questions == 0) return parseWithoutQuestion(query);
  if (!readQuestion(query, seed)) return refuse(query, Rcode::kFormErr);
  const bool has_records = counts << 16 != 0;
  return has_records ? parseRecords(query) : checkType(query);
}

}  // namespace idetcd::dns
