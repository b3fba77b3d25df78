// Gives a Corefile its environment variables and imported files. An interface, so that the parser is a pure function of
// it: tests and fuzzers bring their own.
#pragma once

#include "base/result.h"

namespace idetcd::config {

class Environment {
 public:
  virtual ~Environment() = default;

  // "" if it is not set.
  virtual std::string variable(std::string_view name) const = 0;
  // Against the working directory if relative; lexically cleaned. Need not exist.
  virtual std::string absolutePath(const std::string& path) const = 0;
  // The paths that match `pattern`, sorted; without wild cards the file of that name, if it exists.
  virtual std::vector<std::string> glob(const std::string& pattern) const = 0;
  // Fails with what is wrong ("Is a directory", "Permission denied"), without the path. Not more than `max_bytes`.
  virtual Result<std::string> readFile(const std::string& path, size_t max_bytes) const = 0;
};

// The process's own. Any thread, as long as none calls setenv(3).
class SystemEnvironment final : public Environment {
 public:
  std::string variable(std::string_view name) const override;
  std::string absolutePath(const std::string& path) const override;
  std::vector<std::string> glob(const std::string& pattern) const override;
  Result<std::string> readFile(const std::string& path, size_t max_bytes) const override;
};

// Replaces each {$NAME} and {%NAME%} of `text` by the variable's value, once, from left to right: a value is never
// looked at again, so that it can neither split nor loop. What only looks like a reference stays as it is.
std::string expandVariables(std::string_view text, const Environment& environment);

// Takes down what a Corefile was read from, as one digest: two readings with the same digest come to the same. Environment
// variables are no part of it, since they stay as they are for as long as a process lives. One thread.
class RecordingEnvironment final : public Environment {
 public:
  // `environment` answers; it must outlive this one. `corefile`: its text, or what was wrong with it.
  RecordingEnvironment(const Environment& environment, std::string_view corefile);

  // The SHA-512 of the Corefile, where it imports no file: sha512sum(1) of the file says the same. Else that of a list of
  // all that was looked for, found and read until now.
  std::string digest() const;

  std::string variable(std::string_view name) const override;
  std::string absolutePath(const std::string& path) const override;
  std::vector<std::string> glob(const std::string& pattern) const override;
  Result<std::string> readFile(const std::string& path, size_t max_bytes) const override;

 private:
  void note(std::string_view what, std::string_view text) const;

  const Environment& environment_;
  const std::string corefile_digest_;
  mutable std::string imports_;  // a line each; empty: none
};

}  // namespace idetcd::config
