# cpack reads this for each kind of package.
if(CPACK_GENERATOR STREQUAL RPM)
  set(CPACK_COMPONENTS_ALL package)
endif()
