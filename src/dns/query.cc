#include "dns/query.h"

#include "dns/message_reader.h"

namespace idetcd::dns {

namespace {

// False: it has no length that there is (RFC 7873 §5.2.2).
bool noteCookie(std::span<const uint8_t> data, Query& query) {
  const size_t size = data.size();
  if (size != Cookie::kClientSize && (size < 16 || size > 40)) return false;
  Cookie& cookie = query.cookie;
  std::copy_n(data.begin(), Cookie::kClientSize, cookie.client.begin());
  cookie.judgement = size == Cookie::kClientSize ? Cookie::Judgement::kNew : Cookie::Judgement::kBad;
  if (size == Cookie::kClientSize + Cookie::kServerSize) {
    std::copy_n(data.begin() + Cookie::kClientSize, Cookie::kServerSize, cookie.server.begin());
    cookie.judgement = Cookie::Judgement::kUnjudged;
  }
  cookie.in_response = false;
  query.asked_options |= kAsksCookie;
  return true;
}

// RFC 6891 §6.1.2; of two cookies only the first is looked at (RFC 7873 §5.2). False: FORMERR, and nothing is asked for.
bool noteOptions(std::span<const uint8_t> rdata, Query& query) {
  OptionReader reader(rdata);
  OptionView option;
  ReadStep step;
  bool valid = true;
  while (valid && (step = reader.next(option)) == ReadStep::kRead) {
    if (option.code == code(EdnsOption::kNsid)) query.asked_options |= kAsksNsid;
    if (option.code == code(EdnsOption::kPadding)) query.asked_options |= kAsksPadding;
    if (option.code == code(EdnsOption::kTcpKeepalive)) {
      query.asked_options |= option.data.empty() ? kAsksKeepalive : kMisusesKeepalive;
    }
    if (option.code == code(EdnsOption::kCookie) && !query.asksFor(kAsksCookie)) valid = noteCookie(option.data, query);
  }
  valid = valid && step == ReadStep::kEnd;
  if (!valid) query.asked_options = 0;
  return valid;
}

ParseOutcome refuse(Query& query, Rcode rcode) {
  query.error = rcode;
  return ParseOutcome::kError;
}

void noteQuestion(Query& query, size_t name_end) {
  query.qname_size = static_cast<uint16_t>(name_end - kHeaderSize);
  query.qtype = load16(query.message + name_end);
  query.qclass = load16(query.message + name_end + 2);
  query.question_end = static_cast<uint16_t>(name_end + 4);
}

void noteName(Query& query, HashSeed seed) {
  foldCase(query.message + kHeaderSize, query.qname_size, query.qname);
  query.hash = hashBytes(query.qname, query.qname_size, seed);
}

void noteNoQuestion(Query& query) {
  query.question_end = kHeaderSize;
  query.qtype = query.qclass = query.qname_size = 0;
  query.hash = 0;
}

bool readQuestion(Query& query, HashSeed seed) {
  const size_t end = skipName(query.message, query.size, kHeaderSize);
  if (end == 0 || query.size - end < 4) return false;
  noteQuestion(query, end);
  noteName(query, seed);
  return true;
}

// The sections behind the question: most queries have none, or OPT.
class RecordReader {
 public:
  explicit RecordReader(Query& query) : query_(query) {}

  // False: FORMERR. What else is wrong goes to query.error.
  bool read() {
    MessageReader reader({query_.message, query_.size}, query_.question_end);
    RecordView record;
    ReadStep step;
    while ((step = reader.next(record)) == ReadStep::kRead) {
      const bool additional = record.section == Section::kAdditional;
      if (record.type == code(RrType::kOpt) && !(additional && readOpt(record))) return false;
      if (record.type == code(RrType::kTsig) && !(additional && record.is_last && noteTsig(record))) return false;
    }
    return step == ReadStep::kEnd;
  }

 private:
  bool readOpt(const RecordView& opt) {
    if (query_.has_edns || query_.message[opt.owner] != 0) return false;  // RFC 6891 §6.1.1
    query_.has_edns = true;
    query_.udp_payload = std::max(opt.klass, static_cast<uint16_t>(kMinUdpPayload));
    query_.dnssec_ok = (opt.ttl & 0x8000) != 0;
    if ((opt.ttl & 0xff0000) != 0) {  // RFC 6891 §6.1.3: nothing else of an unknown version may be looked at
      query_.error = Rcode::kBadVers;
      return true;
    }
    return opt.rdata_size == 0 || noteOptions({query_.message + opt.rdata, opt.rdata_size}, query_);
  }

  // Where no key is configured every TSIG's is unknown (RFC 8945 §5.2.1). Only uncompressed names can be echoed.
  bool noteTsig(const RecordView& tsig) {
    if (query_.error == Rcode::kNoError) query_.error = Rcode::kNotAuth;
    query_.tsig_offset = static_cast<uint16_t>(tsig.owner);
    return true;
  }

  Query& query_;
};

// Question and OPT are answered where readable (RFC 6891 §6.1.1); other opcodes may give sections another meaning.
ParseOutcome parseOtherOpcode(Query& query, HashSeed seed, uint16_t questions) {
  if (questions == 0 || (questions == 1 && readQuestion(query, seed))) RecordReader(query).read();
  return refuse(query, Rcode::kNotImp);
}

ParseOutcome parseWithoutQuestion(Query& query) {
  if (!RecordReader(query).read()) return refuse(query, Rcode::kFormErr);
  if (query.error != Rcode::kNoError) return ParseOutcome::kError;
  // Only a COOKIE asks for anything (RFC 7873 §5.4).
  return refuse(query, query.asksFor(kAsksCookie) ? Rcode::kNoError : Rcode::kFormErr);
}

[[gnu::noinline]] ParseOutcome checkMetaType(Query& query) {
  constexpr uint16_t kNxname = 128;  // RFC 9824 §3.5: only NSEC's bitmaps have it
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
      query.error = Rcode::kRefused;
      return ParseOutcome::kTransfer;
    default:
      return query.qtype == 0 || query.qtype == kNxname ? refuse(query, Rcode::kFormErr) : ParseOutcome::kQuery;
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

bool hasRecords(const Query& query) { return load64(query.message + 4) << 16 != 0; }

// Each of these is the end of parseQuery(), and not inlined, so that what almost every query takes saves no register.

[[gnu::noinline]] ParseOutcome refuseQuestion(Query& query) {
  noteNoQuestion(query);
  return refuse(query, Rcode::kFormErr);
}

// Another opcode than QUERY, or not one question.
[[gnu::noinline]] ParseOutcome parseUnusual(Query& query, HashSeed seed) {
  if ((query.flags & kFlagQr) != 0) return ParseOutcome::kDrop;
  noteNoQuestion(query);
  const uint16_t questions = load16(query.message + 4);
  if (query.opcode() != Opcode::kQuery) return parseOtherOpcode(query, seed, questions);
  return questions == 0 ? parseWithoutQuestion(query) : refuse(query, Rcode::kFormErr);  // RFC 9619
}

// A name that is shorter or longer than most.
[[gnu::noinline, gnu::flatten]] ParseOutcome parseOtherName(Query& query, HashSeed seed) {
  noteName(query, seed);
  return hasRecords(query) ? parseRecords(query) : checkType(query);
}

}  // namespace

// (flatten: the hash, too, is inlined. Nothing but the rare cases above is called, each in the place of a return.)
[[gnu::flatten]] ParseOutcome parseQuery(uint8_t* message, size_t size, HashSeed seed, Query& query) {
  if (size < kHeaderSize) [[unlikely]]
    return ParseOutcome::kDrop;
  query.message = message;
  query.size = static_cast<uint16_t>(size);
  query.flags = load16(message + 2);
  query.udp_payload = kMinUdpPayload;
  query.tsig_offset = 0;
  query.error = Rcode::kNoError;
  query.has_edns = query.dnssec_ok = false;
  query.asked_options = 0;
  query.nsid = nullptr;

  const uint64_t counts = load64(message + 4);
  if ((query.flags & (kFlagQr | kOpcodeMask)) != 0 || counts >> 48 != 1) [[unlikely]]
    return parseUnusual(query, seed);
  const size_t end = skipName(message, size, kHeaderSize);
  if (end == 0 || size - end < 4) [[unlikely]]
    return refuseQuestion(query);
  noteQuestion(query, end);
  // Most names have 17 to 32 bytes: then hash and folding take no loop.
  const size_t name_size = end - kHeaderSize;
  if (name_size - 17 > 32 - 17) return parseOtherName(query, seed);
  foldBlock(message + kHeaderSize, query.qname);
  foldBlock(message + kHeaderSize + 16, query.qname + 16);
  query.hash = hashBytes(query.qname, name_size, seed);
  const bool has_records = counts << 16 != 0;
  return has_records ? parseRecords(query) : checkType(query);
}

ParseOutcome passTsig(Query& query) {
  assert(query.tsig_offset != 0 && query.error == Rcode::kNotAuth);
  query.error = Rcode::kNoError;
  return checkType(query);
}

}  // namespace idetcd::dns
