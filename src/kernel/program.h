// The program in the kernel (answer.bpf.c): loaded, attached to interfaces by links (bpf_link), and pinned on a file
// system of the kernel's, where it outlives the process. Takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; errors are one
// line. A program that something else has attached to an interface is never replaced. One thread.
//
// In a pinned directory: the maps under their names (maps.h), and a file link-INTERFACE for each interface.
#pragma once

#include "base/file_descriptor.h"
#include "base/result.h"
#include "kernel/maps.h"

namespace idetcd::kernel {

// Where the program runs.
enum class Mode : uint8_t {
  kAny,      // in the driver where it can, else behind it; behind it on one end of a veth pair
  kNative,   // in the driver
  kGeneric,  // behind it, for any interface
};

struct AttachOptions {
  std::vector<std::string> interfaces;
  Mode mode = Mode::kAny;
  size_t max_names = kDefaultNames;
};

// Whether the interface is one end of a veth pair. In native mode both ends need an XDP program.
bool isVeth(const std::string& interface);

// Whether the program was compiled into this binary: without clang, bpftool and libbpf it is built without.
bool hasProgram();

struct InterfaceProgram {
  uint32_t index = 0;        // of the interface; 0: there is none
  std::optional<Mode> mode;  // of its XDP program; none: it has none
  bool operator==(const InterfaceProgram&) const = default;
};
// The interface's program. Asks the kernel over netlink; takes no right. The error says nothing about the interface: there
// was no descriptor, for example.
Result<InterfaceProgram> programOn(const std::string& interface);

// Ends with this object.
struct Attachment {
  std::shared_ptr<Maps> maps;
  std::string failure;     // why what was pinned before is used as it was; empty: it is as it should be
  FileDescriptor program;  // if this process has loaded it
  std::vector<FileDescriptor> links;
};
Result<Attachment> attach(const AttachOptions& options);

// Attaches the program of this binary and pins it in `directory`, which is created if it does not exist. What is pinned
// there stays in use: a program is exchanged for this one between two frames, maps are kept unless they have another
// layout or size, and interfaces that `options` does not name are detached. `user`: the user that may feed the maps,
// besides root; empty: no one.
Result<void> attachPinned(const AttachOptions& options, const std::string& directory, const std::string& user = {});

// Ends what attachPinned() has begun: from now on the sockets answer. False: there was nothing.
Result<bool> detachPinned(const std::string& directory);

struct LinkStatus {
  std::string interface;
  bool is_attached = false;  // to an interface of this network namespace
  uint32_t program = 0;      // the kernel's number
  Mode mode = Mode::kAny;    // if it is attached
};
// Of the files in `directory`; takes no more than the right to read them.
Result<std::vector<LinkStatus>> readLinks(const std::string& directory);

}  // namespace idetcd::kernel
