# cmake -D FROM=page.html -D TO=page.cc -P embed.cmake: the file as idetcd::directive::kPage (directive/admin/page_response.h).
file(READ ${FROM} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${TO} "#include \"directive/admin/page_response.h\"

namespace idetcd::directive {

namespace {

constexpr unsigned char kBytes[] = {
${bytes}
};

}  // namespace

const std::string_view kPage(reinterpret_cast<const char*>(kBytes), sizeof kBytes);

}  // namespace idetcd::directive
")
