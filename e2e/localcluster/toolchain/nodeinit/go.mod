module toolchain/nodeinit

go 1.26.0
