// In place of program.cc where the program could not be compiled.
#include "kernel/program.h"

namespace idetcd::kernel {

namespace {

tl::unexpected<Error> missing() {
  return fail("this binary was built without the program for XDP (clang, bpftool and libbpf were missing)");
}

}  // namespace

bool isVeth(const std::string&) { return false; }
bool hasProgram() { return false; }
Result<InterfaceProgram> programOn(const std::string&) { return missing(); }
Result<Attachment> attach(const AttachOptions&) { return missing(); }
Result<void> attachPinned(const AttachOptions&, const std::string&, const std::string&) { return missing(); }
Result<bool> detachPinned(const std::string&) { return missing(); }
Result<std::vector<LinkStatus>> readLinks(const std::string&) { return missing(); }

}  // namespace idetcd::kernel
