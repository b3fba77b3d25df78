// Reads the arguments and the block of one directive. The first error sticks: nothing more is delivered, and finish()
// reports it. One thread; the directive must outlive the cursor.
//
//   DirectiveCursor cursor(directive);
//   while (cursor.nextBlock()) {
//     if (cursor.value() == "limit") {
//       const Result<std::string> limit = cursor.oneArg();
//       …
//     }
//   }
//   return cursor.finish();
//
// Errors are complete: `FILE:LINE - Error during parsing: …` with the place of the current token.
#pragma once

#include "base/result.h"
#include "config/corefile.h"
#include "dns/name.h"

namespace idetcd::config {

class DirectiveCursor {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  explicit DirectiveCursor(const Directive& directive);

  const std::string& directive() const { return directive_; }

  // The current token: the directive's name at first, then what nextArg() or nextBlock() went to.
  const std::string& value() const { return current_.text; }
  int line() const { return current_.line; }

  // Goes to the next argument. False at the end of the line, and in front of a brace.
  bool nextArg();
  bool argumentFollows() const;  // whether nextArg() would go on
  // The rest of the line, up to a brace.
  std::vector<std::string> remainingArgs();
  // The rest of the line; argError() if it is not min to max arguments.
  Result<std::vector<std::string>> args(size_t min, size_t max = kNoLimit);
  // As args(), for what no message may quote: it goes into logs.
  Result<std::vector<std::string>> secretArgs(size_t min, size_t max);
  Result<std::string> oneArg();
  // The rest of the line as one text. Of one token that is its value; of several, as they were written, quotes included
  // and a blank between two: for an argument that falls apart if it is not quoted as a whole, like worker{{ .ID }}.
  std::string remainingText();

  // Enters the block, or its next line; false at its end. Unread arguments of the line before are an error.
  bool nextBlock();

  // Fails with the error that stuck, or if anything of the directive was not read. REQUIRES: called at the end.
  Result<void> finish();

  // "Wrong argument count or unexpected line ending after '…'".
  tl::unexpected<Error> argError() const;
  tl::unexpected<Error> error(std::string_view text) const;
  // At another line of the same file.
  tl::unexpected<Error> errorAt(int line, std::string_view text) const;

 private:
  const Token* peek() const;
  void advance();
  void latch(tl::unexpected<Error> error);

  const std::string& directive_;
  const std::vector<Token>& tokens_;
  size_t next_ = 0;
  Token current_;
  bool in_block_ = false;
  std::optional<Error> error_;
};

// Zones as arguments: names, or networks that stand for their reverse zones. The error is complete. Any thread.
Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const std::vector<std::string>& arguments);

// The zones of a server block, each once, whatever schemes and ports it is served by.
std::vector<dns::Name> zonesOf(const std::vector<ServerKey>& keys);

// The files that a directive names, as -validate reads them: a server reads them when it starts, and again when they
// change. Looks at the words alone, so that the rest of the directive may be wrong too. Any thread; blocks on the file
// system.
class NamedFiles {
 public:
  struct Line {
    std::vector<std::string> words;
    int number = 0;
  };

  // `zones`: of the directive's server block.
  NamedFiles(const Directive& directive, std::vector<dns::Name> zones);

  const std::vector<dns::Name>& zones() const { return zones_; }
  // The directive's own line, which begins with its name, and the lines of its block.
  const std::vector<Line>& lines() const { return lines_; }

  // Notes an error, or a warning, at a line: complete with file and line.
  void add(int line, std::string_view text);
  void warn(int line, std::string_view text);
  // The content; an error is noted.
  std::optional<std::string> read(const std::string& path, int line);
  // Each line of the block that begins with `tls`. The files of one are read first, so that all that are missing are
  // named; if all can be read, `check` says whether they fit together.
  void checkTls(const std::function<Result<void>(std::span<const std::string> paths)>& check);
  // Each line of the block that begins with `option`: its first argument, if it is there, has to be a directory.
  void checkDirectories(std::string_view option);

  const std::vector<Error>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  const Directive& directive_;
  const std::vector<dns::Name> zones_;
  std::vector<Line> lines_;
  std::vector<Error> errors_;
  std::vector<std::string> warnings_;
};

}  // namespace idetcd::config
