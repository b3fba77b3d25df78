# The libraries that pkg-config knows. With IDETCD_STATIC they are linked as archives, so that the server is one file that
# needs nothing of the machine but its libc: a cluster's image has no gRPC, and each distribution another soname of it.
# libc stays dynamic: getaddrinfo reads nsswitch.conf by loading what that names.
option(IDETCD_STATIC "Link libraries other than libc statically" ON)

# Sets `out` to the paths of the archives for `names`, in their order; a name that libc provides or that has no archive
# stays a name, for the linker to find.
function(idetcd_archives out names)
  set(found "")
  foreach(name ${names})
    set(item ${name})
    if(NOT name MATCHES "^(c|dl|m|pthread|rt)$")
      # The compiler also knows the directory of its own archives (libatomic.a), which is in no search path of CMake.
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${name}.a OUTPUT_VARIABLE path
                      OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(IS_ABSOLUTE "${path}")
        set(item ${path})
        # Libraries that the distribution's updates have to reach, in a target that asks for it: the one of the Debian
        # package.
        if(name MATCHES "^(ssl|crypto|z)$")
          set(item $<IF:$<BOOL:$<TARGET_PROPERTY:IDETCD_SHARED_TLS>>,${name},${path}>)
        endif()
      else()
        message(STATUS "No archive lib${name}.a: the server will need lib${name}.so")
      endif()
    endif()
    list(APPEND found ${item})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# idetcd_package(NAME MODULE...): the target idetcd::NAME links the pkg-config modules. pkg_check_modules() would do, but asks
# pkg-config twenty times, which takes 11 s with gRPC.
function(idetcd_package name)
  set(static "")
  if(IDETCD_STATIC)
    set(static --static)
  endif()
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags ${ARGN} OUTPUT_VARIABLE cflags OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --libs ${static} ${ARGN} OUTPUT_VARIABLE libs OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(cflags UNIX_COMMAND "${cflags}")
  separate_arguments(libs UNIX_COMMAND "${libs}")
  set(includes ${cflags})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  list(FILTER cflags EXCLUDE REGEX "^-I")
  set(directories ${libs})
  list(FILTER directories INCLUDE REGEX "^-L")
  list(TRANSFORM directories REPLACE "^-L" "")
  list(FILTER libs INCLUDE REGEX "^-l")
  list(TRANSFORM libs REPLACE "^-l" "")
  if(IDETCD_STATIC)
    idetcd_archives(libs "${libs}")
  endif()
  add_library(idetcd::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(idetcd::${name} SYSTEM INTERFACE ${includes})
  target_compile_options(idetcd::${name} INTERFACE ${cflags})
  target_link_directories(idetcd::${name} INTERFACE ${directories})
  target_link_libraries(idetcd::${name} INTERFACE ${libs} Threads::Threads)
endfunction()

# libuv's archive has a name and a module of its own.
set(uv libuv)
if(IDETCD_STATIC)
  set(uv libuv-static)
endif()

idetcd_package(grpc grpc++ protobuf)
idetcd_package(protobuf protobuf)
idetcd_package(tls libssl libcrypto)
idetcd_package(uv ${uv})
idetcd_package(xxhash libxxhash)
idetcd_package(nghttp2 libnghttp2)
idetcd_package(re2 re2)
idetcd_package(seccomp libseccomp)

# fmt has no archive in Debian: fmt.cc makes it of the headers. FMT_SHARED only says that the functions are not inline.
add_library(idetcd_fmt STATIC ${PROJECT_SOURCE_DIR}/src/base/fmt.cc)
target_compile_definitions(idetcd_fmt PUBLIC FMT_SHARED)
