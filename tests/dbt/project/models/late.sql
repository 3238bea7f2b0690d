{{ config(materialized="ephemeral") }}
select carrier, if(delay < 1000, delay, raise_error('delay')) as delay from {{ source("raw", "flights") }} where delay > 0
