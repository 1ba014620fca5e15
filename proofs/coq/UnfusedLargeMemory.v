(* Without fusion, in a large memory: the constant is 4 again (new ground).

   For unfused attention (as in UnfusedBound.v: q_i meets k_j at one moment, a_i meets
   v_j at another, scores may wait in fast memory, be spilled, reloaded and formed
   again) and any window length 0 < L <= M, with D = d + dv,

     L (visible pairs) D^2 <= (L (M + L - 1) + D^2 M) (loads + made)

   where made counts the accumulator words made in fast memory; it is at most the
   stores unless accumulators are dropped unsaved.  For dv = d, M = k^2 and L = 2dk it
   says, for M >= 4d^2 and without a mask,

     4 nq nk d^2 <= (M + 4 d sqrt(M)) (loads + made)

   so the constant tends to 4 as M / d^2 grows, and is above 2 from M = 16 d^2 on:
   to leading order no unfused schedule beats flash2 when M is much larger than d^2.

   Proof: cut the execution into windows of L arrivals of q, k, v and a words.  A
   window sees at most M + L of them.  A pair whose score is formed and absorbed in
   one window puts all its D^2 word pairs together among them.  Any other pair had its
   score in fast memory when the window began (at most M of these per window) or
   loaded it.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting MeetingOnce AttentionModel FusedBound.
Import ListNotations.

(* The rows' words, and the score that a word holds. *)
Definition row_word (w : aword) : bool :=
  match w with Wq _ _ | Wk _ _ | Wv _ _ | Wa _ _ => true | _ => false end.
Definition score_in (w : aword) : list (nat * nat) :=
  match w with Ws i j => [(i, j)] | _ => [] end.

Section Window.
Variables (d dv : nat) (vis : list (nat * nat)) (M L : nat).
Notation X := (attention false true d dv vis).
Hypothesis L_positive : 0 < L.

(* Accumulator words made in fast memory. *)
Definition cost_made (e : event X) : nat := match e with New (Wa _ _) => 1 | _ => 0 end.
Definition made : list (event X) -> nat := total cost_made.

(* Arrivals of row words, and loads of scores. *)
Definition arrival (e : event X) : nat :=
  match e with
  | Load w => if row_word w then 1 else 0
  | New (Wa _ _) => 1
  | _ => 0
  end.
Definition score_load (e : event X) : nat :=
  match e with Load (Ws _ _) => 1 | _ => 0 end.

(* k windows are over; the present one has had r new row words and has seen those in
   seen; far holds the pairs given up, paid the pairs of words that have met. *)
Record window (s : state X) (k r arrivals score_loads : nat) (seen : list aword)
    (far : list (nat * nat)) (paid : list (aword * aword)) : Prop := {
  w_count : r <= L /\ k * L + r <= arrivals;
  w_seen : NoDup seen /\ length seen <= M + r;
  w_fast : forall w, In w (fast s) -> row_word w = true -> In w seen;
  w_size : length (fast s) <= M /\ NoDup (fast s);
  w_met : forall x y, In x seen -> In y seen -> x <> y -> met paid x y;
  w_paid : length paid <= (M + L - 1) * arrivals;
  w_far : length far <= k * M + score_loads;
  w_score : forall i j, In (Score i j) (content s (Ws i j)) ->
    In (i, j) far \/ (In (Ws i j) (fast s) /\ forall x, In x (q_words d i ++ k_words d j) -> In x seen)
}.

Lemma filter_length_le {A} (f : A -> bool) l : length (filter f l) <= length l.
Proof. induction l as [| a l IH]; cbn; [ lia | destruct (f a); cbn; lia ]. Qed.

Lemma scores_in_fast (f : list aword) : length (flat_map score_in f) <= length f.
Proof. induction f as [| [] f IH]; cbn; lia. Qed.

(* A new window begins: what was seen is forgotten but for what is in fast memory. *)
Lemma window_restart (s : state X) k arrivals score_loads seen far paid :
  window s k L arrivals score_loads seen far paid ->
  window s (S k) 0 arrivals score_loads (filter row_word (fast s))
    (flat_map score_in (fast s) ++ far) paid.
Proof.
  intros [[C1 C2] [S1 S2] F [Z1 Z2] Me P Fa Sc]. split; auto.
  - cbn. lia.
  - split; [ now apply NoDup_filter | ].
    pose proof (filter_length_le row_word (fast s)). cbn in *. lia.
  - intros w Hw Hr. apply filter_In. auto.
  - intros x y Hx Hy. apply filter_In in Hx as [Hx Hx'], Hy as [Hy Hy']. auto.
  - rewrite app_length. pose proof (scores_in_fast (fast s)). cbn in *. lia.
  - intros i j H. left. apply in_or_app. destruct (Sc i j H) as [? | [Hf _]]; [ now right | left ].
    apply in_flat_map. exists (Ws i j). cbn. auto.
Qed.

(* A row word arrives that the window has not seen. *)
Lemma window_arrive (s s' : state X) k r arrivals score_loads seen far paid w :
  window s k r arrivals score_loads seen far paid -> r < L -> ~ In w seen -> row_word w = true ->
  fast s' = w :: fast s -> length (fast s') <= M ->
  (forall i j, content s' (Ws i j) = content s (Ws i j)) ->
  window s' k (S r) (S arrivals) score_loads (w :: seen) far (paid ++ meets (X := X) w seen).
Proof.
  intros [[C1 C2] [S1 S2] F [Z1 Z2] Me P Fa Sc] Hr Hw Hrow E HM Ec. split; auto.
  - lia.
  - split; [ now constructor | cbn; lia ].
  - rewrite E. intros x [<- | Hx] Hx'; [ now left | right; auto ].
  - split; [ exact HM | ]. rewrite E. constructor; [ | exact Z2 ]. intros H. apply Hw. auto.
  - intros x y [<- | Hx] [<- | Hy] Hxy; rewrite met_app; [ congruence | | | ].
    + right. now apply (meets_met (X := X)).
    + right. destruct (meets_met (X := X) w seen x Hx); [ now right | now left ].
    + left. auto.
  - rewrite app_length. unfold meets. rewrite map_length. change (word X) with aword in *. lia.
  - intros i j H. rewrite Ec in H. destruct (Sc i j H) as [? | [Hf Hx]]; [ now left | right ].
    rewrite E. split; [ now right | ]. intros x Hx'. right. auto.
Qed.

Lemma row_word_content w i j : row_word w = true -> w <> Ws i j.
Proof. intros H ->. discriminate. Qed.

Definition met_all (paid : list (aword * aword)) (p : nat * nat) : Prop :=
  forall x y, In (x, y) (fused_targets d dv p) -> met paid x y.

Lemma window_step (s : state X) k r arrivals score_loads seen far paid e :
  window s k r arrivals score_loads seen far paid ->
  allowed s e -> length (fast (step s e)) <= M ->
  exists k' r' seen' far' paid',
    window (step s e) k' r' (arrivals + arrival e) (score_loads + score_load e) seen' far' paid' /\
    incl far far' /\ incl paid paid' /\
    (forall i j, e = Do (X := X) (Absorb i j) -> In (i, j) far' \/ met_all paid' (i, j)).
Proof.
  intros W He HM.
  (* a row word comes in, by Load or New *)
  assert (A : forall w (s' : state X), row_word w = true -> ~ In w (fast s) -> fast s' = w :: fast s ->
    length (fast s') <= M -> (forall i j, content s' (Ws i j) = content s (Ws i j)) ->
    exists k' r' seen' far' paid',
      window s' k' r' (arrivals + 1) score_loads seen' far' paid' /\
      incl far far' /\ incl paid paid').
  { intros w s' Hrow Hw E HM' Ec. replace (arrivals + 1) with (S arrivals) by lia.
    destruct (in_dec aword_dec w seen) as [Hs | Hs].
    - exists k, r, seen, far, paid. split; [ | split; apply incl_refl ].
      destruct W as [[C1 C2] [S1 S2] F [Z1 Z2] Me P Fa Sc]. split; auto.
      + rewrite E. intros x [<- | Hx] Hx'; auto.
      + split; [ exact HM' | ]. rewrite E. now constructor.
      + lia.
      + intros i j H. rewrite Ec in H. destruct (Sc i j H) as [? | [Hf Hx]]; [ now left | right ].
        rewrite E. split; [ now right | exact Hx ].
    - destruct (Nat.lt_ge_cases r L) as [Hr | Hr].
      + exists k, (S r), (w :: seen), far, (paid ++ meets (X := X) w seen).
        split; [ now apply (window_arrive s s') | split; [ apply incl_refl | apply incl_appl, incl_refl ] ].
      + assert (r = L) as -> by (pose proof (proj1 (w_count _ _ _ _ _ _ _ _ W)); lia).
        apply window_restart in W.
        exists (S k), 1, (w :: filter row_word (fast s)), (flat_map score_in (fast s) ++ far),
          (paid ++ meets (X := X) w (filter row_word (fast s))).
        split; [ | split; [ apply incl_appr, incl_refl | apply incl_appl, incl_refl ] ].
        apply (window_arrive s s'); trivial. rewrite filter_In. tauto. }
  (* nothing of interest happens *)
  assert (Q : forall s' : state X,
    (forall w, In w (fast s') -> row_word w = true -> In w (fast s)) ->
    length (fast s') <= M -> NoDup (fast s') ->
    (forall i j, In (Score i j) (content s' (Ws i j)) -> In (Score i j) (content s (Ws i j)) /\
       (In (Ws i j) (fast s) -> In (Ws i j) (fast s'))) ->
    window s' k r (arrivals + 0) (score_loads + 0) seen far paid).
  { intros s' Hf HM' N Ec. rewrite !Nat.add_0_r.
    destruct W as [C S F Z Me P Fa Sc]. split; auto.
    intros i j H. destruct (Ec i j H) as [H' Hw]. destruct (Sc i j H') as [? | [? ?]]; auto. }
  destruct (w_size _ _ _ _ _ _ _ _ W) as [Z1 Z2].
  destruct e as [w | w | w | w | w | t].
  - (* Load *)
    destruct (in_dec aword_dec w (fast s)) as [Hw | Hw].
    + assert (Ef : fast (step s (@Load X w)) = fast s).
      { destruct s as [f c m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      exists k, r, seen, (score_in w ++ far), paid.
      split; [ | split; [ apply incl_appr, incl_refl | split; [ apply incl_refl | discriminate ] ] ].
      destruct W as [[C1 C2] S F Z Me P Fa Sc]. split; trivial; rewrite ?Ef; trivial.
      * cbn. lia.
      * assert ((M + L - 1) * arrivals <= (M + L - 1) * (arrivals + arrival (@Load X w)))
          by (apply Nat.mul_le_mono_l; lia). lia.
      * rewrite app_length. destruct w; cbn; lia.
      * intros i j H. destruct s as [f c m]. cbn [step content] in H.
        destruct (aword_dec w (Ws i j)) as [-> | N]; [ left; now left | ].
        rewrite (upd_other (X := X)) in H by exact N. destruct (Sc i j H) as [? | [? ?]]; [ left | right; auto ].
        apply in_or_app. now right.
    + assert (Ef : fast (step s (@Load X w)) = w :: fast s).
      { destruct s as [f c m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      destruct (row_word w) eqn:Hrow.
      * destruct (A w (step s (@Load X w))) as (k' & r' & seen' & far' & paid' & W' & I1 & I2); trivial.
        { intros i j. destruct s as [f c m]. cbn [step content]. apply (upd_other (X := X)). now apply row_word_content. }
        exists k', r', seen', far', paid'. cbn [arrival]. rewrite Hrow.
        replace (score_loads + score_load (Load w)) with score_loads by (destruct w; cbn in *; lia || discriminate).
        split; [ exact W' | split; [ exact I1 | split; [ exact I2 | discriminate ] ] ].
      * exists k, r, seen, (score_in w ++ far), paid.
        split; [ | split; [ apply incl_appr, incl_refl | split; [ apply incl_refl | discriminate ] ] ].
        destruct W as [[C1 C2] S F _ Me P Fa Sc].
        cbn [arrival]. rewrite Hrow, Nat.add_0_r. split; trivial; rewrite ?Ef; trivial.
        -- lia.
        -- intros x [<- | Hx] Hx'; [ congruence | auto ].
        -- rewrite Ef in HM. split; [ exact HM | now constructor ].
        -- rewrite app_length. destruct w; cbn; lia.
        -- intros i j H. destruct s as [f c m]. cbn [step content] in H.
           destruct (aword_dec w (Ws i j)) as [-> | N]; [ left; now left | ].
           rewrite (upd_other (X := X)) in H by exact N.
           destruct (Sc i j H) as [? | [? ?]]; [ left; apply in_or_app; now right | right ].
           cbn in *. auto.
  - (* New *)
    destruct He as [Hw Hi].
    assert (Ef : fast (step s (@New X w)) = w :: fast s) by now destruct s.
    destruct (row_word w) eqn:Hrow.
    + destruct (A w (step s (@New X w))) as (k' & r' & seen' & far' & paid' & W' & I1 & I2); trivial.
      { intros i j. destruct s as [f c m]. cbn [step content]. apply (upd_other (X := X)).
        now apply row_word_content. }
      exists k', r', seen', far', paid'.
      replace (arrivals + arrival (@New X w)) with (arrivals + 1)
        by (destruct w; cbn in *; lia || discriminate).
      cbn [score_load]. rewrite Nat.add_0_r.
      split; [ exact W' | split; [ exact I1 | split; [ exact I2 | discriminate ] ] ].
    + exists k, r, seen, far, paid.
      split; [ | split; [ apply incl_refl | split; [ apply incl_refl | discriminate ] ] ].
      replace (arrival (@New X w)) with 0 by (destruct w; cbn in *; lia || discriminate).
      apply Q; rewrite ?Ef; trivial.
      * intros x [<- | Hx] Hr; [ congruence | exact Hx ].
      * now rewrite <- Ef.
      * now constructor.
      * intros i j. destruct s as [f c m]. cbn [step content fast].
        destruct (aword_dec w (Ws i j)) as [-> | N].
        -- rewrite (upd_same (X := X)). intros [].
        -- rewrite (upd_other (X := X)) by exact N. cbn. auto.
  - (* Store *)
    exists k, r, seen, far, paid. destruct s as [f c m].
    split; [ apply Q; cbn in *; auto | ].
    split; [ apply incl_refl | split; [ apply incl_refl | discriminate ] ].
  - (* Add *)
    exists k, r, seen, far, paid. destruct s as [f c m].
    split; [ apply Q; cbn in *; auto | ].
    split; [ apply incl_refl | split; [ apply incl_refl | discriminate ] ].
  - (* Drop *)
    exists k, r, seen, far, paid.
    split; [ | split; [ apply incl_refl | split; [ apply incl_refl | discriminate ] ] ].
    destruct s as [f c m]. cbn [step fast content] in *.
    apply Q; cbn [step fast content]; trivial.
    + intros x Hx _. now apply in_remove in Hx.
    + clear - Z2. induction Z2 as [| x f Hx _ IH]; cbn; [ constructor | ].
      destruct (aword_dec w x); [ exact IH | constructor; [ | exact IH ] ].
      intros H. apply in_remove in H as [H _]. auto.
    + intros i j. destruct (aword_dec w (Ws i j)) as [-> | N].
      * rewrite (upd_same (X := X)). intros [].
      * rewrite (upd_other (X := X)) by exact N. intros H. split; [ exact H | ].
        intros Hf. apply in_in_remove; auto.
  - (* Do *)
    destruct He as [Hn Hr]. exists k, r, seen, far, paid.
    assert (Ef : fast (step s (Do t)) = fast s) by now destruct s.
    assert (Fs : forall x, In x (needs t) -> row_word x = true -> In x seen).
    { intros x Hx. apply (w_fast _ _ _ _ _ _ _ _ W). now apply Hn. }
    split; [ | split; [ apply incl_refl | split; [ apply incl_refl | ] ] ].
    + (* the invariant *)
      assert (Ec : forall i j, In (Score i j) (content (step s (Do t)) (Ws i j)) ->
        In (Score i j) (content s (Ws i j)) \/ t = Score i j).
      { intros i j. destruct s as [f c m]. cbn [step content]. unfold absorb.
        destruct (in_dec (word_dec X) (Ws i j) (outs t)) as [Ho | Ho]; [ | auto ].
        intros [-> | H]; auto. }
      destruct W as [C S F Z Me P Fa Sc]. cbn [arrival score_load]. rewrite !Nat.add_0_r.
      split; rewrite ?Ef; trivial.
      intros i j H. destruct (Ec i j H) as [H' | ->]; [ auto | right ].
      split.
      * apply Hn. cbn. rewrite !in_app_iff. cbn. auto.
      * intros x Hx. apply Fs; [ cbn; rewrite !in_app_iff in *; tauto | ].
        unfold q_words, k_words in Hx. in_words; reflexivity.
    + (* an absorbed pair *)
      intros i j E. injection E as ->. cbn in Hr. specialize (Hr eq_refl).
      destruct (w_score _ _ _ _ _ _ _ _ W i j Hr) as [? | [_ Hqk]]; [ now left | right ].
      intros x y H. apply in_prod_iff in H as [Hx Hy]. cbn in Hx, Hy.
      apply (w_met _ _ _ _ _ _ _ _ W).
      * apply in_app_iff in Hx as [Hx | Hx]; [ apply Hqk, in_or_app; now left | ].
        apply Fs; [ cbn; rewrite !in_app_iff; tauto | ].
        unfold a_words in Hx. in_words; reflexivity.
      * apply in_app_iff in Hy as [Hy | Hy]; [ apply Hqk, in_or_app; now right | ].
        apply Fs; [ cbn; rewrite !in_app_iff; tauto | ].
        unfold v_words in Hy. in_words; reflexivity.
      * intros ->. unfold q_words, a_words, k_words, v_words in *. in_words.
Qed.

Lemma window_run es : forall s k r arrivals score_loads seen far paid,
  window s k r arrivals score_loads seen far paid -> valid M s es ->
  exists k' r' seen' far' paid',
    window (run s es) k' r' (arrivals + total arrival es) (score_loads + total score_load es)
      seen' far' paid' /\
    incl far far' /\ incl paid paid' /\
    (forall i j, In (@Do X (Absorb i j)) es -> In (i, j) far' \/ met_all paid' (i, j)).
Proof.
  induction es as [| e es IH]; intros s k r ar sl seen far paid W V.
  - exists k, r, seen, far, paid. cbn. rewrite !Nat.add_0_r.
    split; [ exact W | split; [ apply incl_refl | split; [ apply incl_refl | tauto ] ] ].
  - destruct V as (He & HM & V).
    destruct (window_step _ _ _ _ _ _ _ _ e W He HM) as (k1 & r1 & s1 & f1 & p1 & W1 & If & Ip & D1).
    destruct (IH _ _ _ _ _ _ _ _ W1 V) as (k2 & r2 & s2 & f2 & p2 & W2 & If2 & Ip2 & D2).
    exists k2, r2, s2, f2, p2. cbn [total]. rewrite !Nat.add_assoc. split; [ exact W2 | ].
    split; [ now apply incl_tran with f1 | split; [ now apply incl_tran with p1 | ] ].
    intros i j [E | H]; [ | now apply D2 ].
    destruct (D1 i j E) as [H | H]; [ left; auto | right ].
    intros x y Hxy. destruct (H x y Hxy); [ left | right ]; auto.
Qed.

Lemma arrivals_bound es : total arrival es + total score_load es <= loads es + made es.
Proof.
  unfold loads, made. induction es as [| e es IH]; cbn; [ lia | ].
  destruct e as [[] | [] | | | | ]; cbn; lia.
Qed.

Theorem unfused_window_bound es : 0 < dv -> L <= M -> NoDup vis ->
  valid M (init X) es -> complete false true d dv vis (run (init X) es) ->
  L * (length vis * ((d + dv) * (d + dv)))
  <= (L * (M + L - 1) + (d + dv) * (d + dv) * M) * (loads es + made es).
Proof.
  intros Hdv HL Hvis V C.
  destruct (window_run es (init X) 0 0 0 0 [] [] []) as (k & r & seen & far & paid & W & _ & _ & D);
    trivial.
  { split; cbn; auto; try contradiction; try lia; try (split; [ constructor | lia ]).
    split; [ lia | constructor ]. }
  cbn [Nat.add] in W.
  set (ar := total arrival es) in *. set (sl := total score_load es) in *.
  pose proof (arrivals_bound es) as AB. fold ar sl in AB.
  destruct W as [[C1 C2] _ _ _ _ P Fa _].
  (* pairs not given up have met *)
  set (near := filter (fun p => if in_dec pair_dec p far then false else true) vis).
  assert (N1 : length near * ((d + dv) * (d + dv)) <= length paid).
  { apply (count_targets query_side owner (fused_targets d dv)).
    - now apply NoDup_filter.
    - apply fused_targets_shape.
    - apply fused_targets_owner.
    - intros [i j] x y Hp Hxy. apply filter_In in Hp as [Hp Hf].
      assert (Hd : In (@Do X (Absorb i j)) es).
      { destruct (content_done es (init X) _ _ (or_intror (C i j 0 Hp Hdv)))
          as [H | (w & [[] | []])]. exact H. }
      destruct (D i j Hd) as [H | H]; [ | now apply H ].
      destruct (in_dec pair_dec (i, j) far); [ discriminate | contradiction ]. }
  assert (N2 : length vis <= length near + length far).
  { rewrite <- app_length. apply NoDup_incl_length; [ exact Hvis | ].
    intros p Hp. apply in_or_app. destruct (in_dec pair_dec p far) as [H | H]; [ now right | left ].
    apply filter_In. split; [ exact Hp | ]. destruct (in_dec pair_dec p far); tauto. }
  set (D2 := (d + dv) * (d + dv)) in *. clearbody D2.
  set (A := M + L - 1) in *. assert (L <= A) by lia. clearbody A.
  clear - C1 C2 P Fa N1 N2 AB HL L_positive.
  set (v := length vis) in *. set (n := length near) in *. set (f := length far) in *.
  set (p := length paid) in *. clearbody v n f p ar sl.
  set (c := loads es + made es) in *. clearbody c.
  assert (B1 : L * (v * D2) <= L * (n * D2) + L * (f * D2)).
  { rewrite <- Nat.mul_add_distr_l, <- Nat.mul_add_distr_r.
    apply Nat.mul_le_mono_l, Nat.mul_le_mono_r. exact N2. }
  assert (B2 : L * (n * D2) <= L * (A * ar)) by (apply Nat.mul_le_mono_l; lia).
  assert (B3 : L * f <= M * ar + M * sl).
  { assert (L * f <= L * (k * M + sl)) by (apply Nat.mul_le_mono_l; exact Fa).
    assert (M * (k * L) <= M * ar) by (apply Nat.mul_le_mono_l; lia).
    assert (L * sl <= M * sl) by (apply Nat.mul_le_mono_r; exact HL). lia. }
  apply (Nat.mul_le_mono_r _ _ D2) in B3.
  assert (B4 : (L * A + D2 * M) * (ar + sl) <= (L * A + D2 * M) * c) by (apply Nat.mul_le_mono_l; lia).
  lia.
Qed.
End Window.

(* dv = d, no mask, M = k^2 and windows of 2dk: the constant is 4 / (1 + 4d / k). *)
Corollary unfused_bound_large_memory d nq nk k es :
  0 < d -> 2 * d <= k ->
  valid (k * k) (init (attention false true d d (all_pairs nq nk))) es ->
  complete false true d d (all_pairs nq nk) (run (init _) es) ->
  4 * nq * nk * d * d <= (k * k + 4 * d * k) * (loads es + made d d (all_pairs nq nk) es).
Proof.
  intros Hd Hk V C.
  assert (HL : 0 < 2 * d * k) by nia.
  assert (HM : 2 * d * k <= k * k) by (apply Nat.mul_le_mono_r; exact Hk).
  pose proof (unfused_window_bound d d _ (k * k) (2 * d * k) HL es Hd HM
    (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H.
  set (c := loads es + made _ _ _ es) in *. clearbody c.
  apply (Nat.mul_le_mono_pos_l _ _ (2 * d * k)); [ exact HL | ].
  assert (B : (2 * d * k * (k * k + 2 * d * k - 1) + (d + d) * (d + d) * (k * k)) * c
              <= 2 * d * k * (k * k + 4 * d * k) * c).
  { apply Nat.mul_le_mono_r.
    assert (2 * d * k * (k * k + 2 * d * k - 1) <= 2 * d * k * (k * k + 2 * d * k))
      by (apply Nat.mul_le_mono_l; lia). lia. }
  lia.
Qed.
