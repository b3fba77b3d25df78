// Makes a response anew behind the question of another query: its records one after the other, as they were, changed, or
// left out. One thread.
#pragma once

#include "dns/message_reader.h"
#include "dns/packed_response.h"
#include "dns/record_writer.h"

namespace idetcd::dns {

// A response, and the offset behind its question. REQUIRES: a header, and 12 <= question_end <= bytes.size().
struct MessageView {
  std::span<const uint8_t> bytes;
  size_t question_end;
};

// A response that another one has become.
struct RewrittenResponse {
  PackedResponsePtr packed;   // null: it cannot be read, or has become too large
  bool is_cut = false;        // there was no room for a record of the answer
  uint16_t header_flags = 0;  // of kFlagAa, kFlagRa, kFlagTc: what the message had
};

// Writes it over the query, with AA and RA as the message had them; SERVFAIL if there is nothing to write. Of a message with
// TC no records. Returns the size.
size_t writeRewritten(const RewrittenResponse& response, const Query& query, size_t limit);

class ResponseRewriter {
 public:
  // `response` outlives this.
  ResponseRewriter(const Query& query, const MessageView& response);

  // Of the response; complete after copy().
  Rcode rcode() const { return sections_.rcode; }
  void setRcode(Rcode rcode) { sections_.rcode = rcode; }
  // What is written is not what was validated (RFC 4035 §3.2.3).
  void clearAuthenticData() { sections_.authentic_data = false; }

  // A record of the answer section, before those of the response. `owner`: kReadSlack bytes behind it are readable.
  bool addAnswer(std::span<const uint8_t> owner, RrType type, uint32_t ttl, std::span<const uint8_t> rdata) {
    ++sections_.answers;
    return append(rdata, {.type = code(type), .klass = code(RrClass::kIn)}, owner, ttl);
  }

  // `write(record, owner)` for each record but OPT: whether it could be written, by keep() or replace() or not at all. Once.
  // False: one could not, or the response cannot be read.
  template <typename Write>
  bool copy(Write&& write) {
    RecordView record;
    ReadStep step;
    while ((step = reader_.next(record)) == ReadStep::kRead) {
      if (record.type == code(RrType::kOpt)) {
        readOpt(record);
        continue;
      }
      closeSections(record.section);
      ExpandedName owner;
      if (expandName(response_.bytes, record.owner, owner, work_) == 0 || !write(record, owner.span())) return false;
    }
    return step == ReadStep::kEnd;
  }
  // After copy().
  RewrittenResponse finish();
  template <typename Write>
  RewrittenResponse run(Write&& write) {
    return copy(std::forward<Write>(write)) ? finish() : RewrittenResponse();
  }

  // Whether there is no room for one more record, and an OPT record, in any message behind the question.
  bool isFull(std::span<const uint8_t> owner, size_t rdata_size) const;
  void noteCut() { is_cut_ = true; }
  // True: there is none for this record, however long the names in it become; of the answer, its absence is noted.
  bool leaveOut(const RecordView& record, std::span<const uint8_t> owner) {
    const bool is_full = isFull(owner, record.rdata_size + 2 * kMaxNameLength);
    if (is_full && record.section == Section::kAnswer) noteCut();
    return is_full;
  }

  bool keep(const RecordView& record, std::span<const uint8_t> owner) { return keep(record, owner, record.ttl); }
  bool keep(const RecordView& record, std::span<const uint8_t> owner, uint32_t ttl) {
    count(record.section);
    return writer_.append(response_.bytes, record, owner, ttl);
  }
  // `rdata` stands for itself: no name in it is compressed.
  bool replace(const RecordView& record, std::span<const uint8_t> owner, RrType type, uint32_t ttl,
               std::span<const uint8_t> rdata) {
    count(record.section);
    return append(rdata, {.type = code(type), .klass = record.klass}, owner, ttl);
  }

 private:
  bool append(std::span<const uint8_t> rdata, RecordView record, std::span<const uint8_t> owner, uint32_t ttl) {
    record.rdata_size = static_cast<uint16_t>(rdata.size());
    return writer_.append(rdata, record, owner, ttl);
  }
  void count(Section section);
  void closeSections(Section section);
  void readOpt(const RecordView& opt);

  const MessageView response_;
  const size_t question_end_;  // of the query
  NameWork work_;
  RecordWriter writer_;
  MessageReader reader_;
  ResponseSections sections_;
  Section section_ = Section::kAnswer;
  bool is_cut_ = false;
};

}  // namespace idetcd::dns
