#include "directive/template/record_template.h"

#include "base/text.h"
#include "zones/rdata_reader.h"

namespace idetcd::directive {

Result<TemplateRecord> parseTemplateRecord(std::string_view text) {
  constexpr uint32_t kDefaultTtl = 3600;
  zones::MasterScanner scanner(text);
  const auto more = scanner.next();
  if (!more) return tl::unexpected(more.error());
  if (!*more) return fail("there is no record");
  const std::span<const zones::Word> words = scanner.words();
  zones::WireName owner;
  if (auto named = zones::readName(words.front().text, dns::Name(), true, owner); !named)
    return tl::unexpected(named.error());
  const auto head = zones::readRecordHead(words.subspan(1));
  if (!head) return tl::unexpected(head.error());
  const std::string_view word = head->type_and_data.front().text;
  const auto type = dns::kTypeNames.parse(word);
  if (!type || !zones::isZoneType(*type)) return fail(fmt::format("'{}' is no type of a record", printable(word)));
  TemplateRecord record{
      .owner = dns::Name::fromWire(owner.span()), .type = *type, .ttl = head->ttl.value_or(kDefaultTtl)};
  if (auto read = zones::readRdata(*type, head->type_and_data.subspan(1), dns::Name(), record.rdata); !read)
    return tl::unexpected(read.error());
  const auto another = scanner.next();
  if (!another || *another) return fail("a text has more than one record");
  return record;
}

Result<RecordTemplate> RecordTemplate::parse(std::string_view text) {
  auto parsed = GoTemplate::parse(text);
  if (!parsed) return fail(fmt::format("{}: {}", parsed.error().message, printable(text)));
  RecordTemplate made(std::move(*parsed));
  if (!made.template_.isConstant()) return made;
  auto record = made.expand({});
  if (!record) return fail(fmt::format("{}: {}", record.error().message, printable(text)));
  made.constant_ = std::move(*record);
  return made;
}

Result<TemplateRecord> RecordTemplate::expand(const TemplateData& data) const {
  if (constant_) return *constant_;
  const auto text = template_.expand(data);
  if (!text) return tl::unexpected(text.error());
  auto record = parseTemplateRecord(*text);
  if (!record) return fail(fmt::format("{}: {}", record.error().message, printable(*text)));
  return record;
}

}  // namespace idetcd::directive
