// `log`: a line for a query, in the format and for the names and classes that the Corefile asks for. Any thread.
#pragma once

#include "base/log.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/handler.h"

namespace idetcd::directive {

// The class of a response.
enum class ResponseClass : uint8_t { kSuccess, kDenial, kError };

// REQUIRES: `message` is a response that this server wrote.
ResponseClass classifyResponse(std::span<const uint8_t> message);

// A format with {placeholders}, split once when it is configured.
class LogFormat {
 public:
  static constexpr std::string_view kCommon =
      "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} "
      "{duration}";
  static constexpr std::string_view kCombined =
      "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} "
      "{duration} \"{>opcode}\"";

  // {common} and {combined} expand; {/LABEL} (metadata) is "-". Other braces are text: a format may be JSON.
  static LogFormat parse(std::string_view text);

  std::string render(const dns::Query& query, const resolve::Request& request, std::span<const uint8_t> response,
                     std::chrono::nanoseconds duration) const;

 private:
  enum class Field : uint8_t {
    kLiteral,
    kType,
    kName,
    kClass,
    kProto,
    kRemote,
    kLocal,
    kPort,
    kSize,
    kRcode,
    kRsize,
    kDuration,
    kId,
    kOpcode,
    kDo,
    kBufsize,
    kRflags,
  };
  struct Segment {
    Field field;
    std::string literal;
  };
  void addLiteral(std::string_view text);

  std::vector<Segment> segments_;
};

class QueryLog final : public resolve::QueryObserver {
 public:
  struct Rule {
    dns::Name zone;  // the root: every name
    LogFormat format;
    bool success = true;
    bool denial = true;
    bool error = true;
  };

  QueryLog(std::vector<Rule> rules, Logger log) : rules_(std::move(rules)), log_(std::move(log)) {}

  // Writes the line of the first rule whose zone holds the name, if it wants this class.
  void onAnswered(const dns::Query& query, const resolve::Request& request, std::span<const uint8_t> response,
                  std::chrono::nanoseconds duration) const override;

 private:
  std::vector<Rule> rules_;
  Logger log_;
};

}  // namespace idetcd::directive
