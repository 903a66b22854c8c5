-- A standby answers too, and takes nothing.
SELECT current_setting('transaction_read_only')
