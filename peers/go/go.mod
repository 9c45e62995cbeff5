module underpass/peers

go 1.19
